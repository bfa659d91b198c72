//! Who may do what: principals with their tokens and rules, from a file that is read as a whole.
//!
//! The order in which a request meets it: a connection says a token ([`Access::by_token`]) or shows
//! a certificate ([`Access::by_certificate`]) and is a [`Principal`] from then on; each change is
//! judged before it goes to the log ([`admit`]), each question before it is asked
//! ([`admit_query`]), and what comes back is cut to what that principal may see ([`visible`],
//! [`visible_event`]). What was refused, and what was revoked, goes to the [`AuditLog`].
//!
//! Nothing here knows a socket. A server without an access file does not come here at all: then
//! everyone who can connect is an administrator.

mod admit;
mod audit;
mod file;
mod principal;
mod principals;
mod secret;
#[cfg(test)]
mod tests;
mod throttle;
mod time;
mod visible;

pub use admit::{Denied, Lookup, admit, admit_query, as_unknown};
pub use audit::{AuditLog, Outcome, Record};
pub use file::AccessError;
pub use principal::{Principal, Right, Rule};
pub use principals::{Access, Token};
pub use secret::NewToken;
pub use time::rfc3339;
pub use visible::{visible, visible_answer, visible_event, visible_locks};
