//! The RESP2/RESP3 protocol of Keylatch, for both ends: bytes to arguments and back (`frame`,
//! `reply`), arguments to requests and back (`request` and its parts), and values as a client reads
//! them (`value`). No I/O. `docs/protocol.md` describes it for those who write a client.

mod arguments;
mod frame;
mod lock_words;
mod redis_words;
mod reply;
mod request;
mod task_words;
mod value;

pub use frame::{Arguments, FrameError, Limits, read_arguments};
pub use lock_words::{Lock, read_field, write_lock};
pub use redis_words::{KeyRequest, SetRequest};
pub use reply::{Protocol, Writer};
pub use request::{ClientRequest, Hello, Request, WordError};
pub use task_words::{TaskChange, TaskQuestion, TaskRequest, write_task};
pub use value::{Value, ValueError, read_value};
