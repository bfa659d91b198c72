//! `keylatch token`: the access file's tokens, made, listed and revoked without an editor.

mod edit;
mod grants;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use keylatch_server::access::{Access, NewToken, Principal, Right, rfc3339};
use serde_json::{Value, json};

use crate::failure::NoToken;
use crate::place::Form;
use crate::table;
use grants::Grants;
use store::Store;

const TOKEN: &str = "\
Examples:
  keylatch token create billing --prefix billing: --right shared,exclusive,observe
  keylatch token create billing                  one more, to replace the first without a pause
  keylatch token list
  keylatch token revoke 5f0c1d2e3a4b5c6d

The access file says who may do what with which names. It is TOML and may be edited by hand too;
comments stay where they are. It keeps a hash of each token: a token that is lost cannot be shown
again, only replaced. docs/security.md has the file, the rights, and what they protect.";

const CREATE: &str = "\
Examples:
  keylatch token create billing --prefix billing: --right shared,exclusive,observe
  keylatch token create audit --prefix '' --right observe
  keylatch token create ops --prefix '' --right observe,revoke --prefix deploy: --right exclusive
  (umask 077; keylatch token create billing > billing.token)

Rights, on all names that begin with the prefix (the empty one is every name):
  shared     lock as S or O
  exclusive  lock as E or X, promote, use SET and DEL, work with the tasks of a pool
  observe    see who holds and who waits
  revoke     end somebody's lock
  admin      all of that, and the ids of others
Rules add up; none takes a right away. `exclusive` does not include `shared`.

The token goes to standard output, once. A running server knows it when it has read the file again.";

/// Make, list and revoke the tokens by which clients say who they are.
#[derive(Args, Debug)]
#[command(after_help = TOKEN)]
pub(crate) struct Token {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Create(Create),
    List(List),
    Revoke(Revoke),
}

#[derive(Args, Debug)]
struct Options {
    /// The access file. [default: access.toml in the user's state directory, where the server's
    /// data is by default]
    #[arg(long, value_name = "FILE", env = "KEYLATCH_ACCESS")]
    file: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

impl Options {
    fn path(&self) -> Result<PathBuf> {
        // An empty variable is how scripts take one back.
        let file = self.file.clone().filter(|file| !file.as_os_str().is_empty());
        let default = || keylatch::place::state_dir().map(|dir| dir.join("access.toml"));
        file.or_else(default)
            .context("there is no home directory: set XDG_STATE_HOME, or say --file FILE")
    }
}

/// Make a token for a principal, and the principal if there is none of that name.
#[derive(Args, Debug)]
#[command(after_help = CREATE)]
struct Create {
    /// The principal: who the client is. Its locks carry this name.
    name: String,
    #[command(flatten)]
    grants: Grants,
    #[command(flatten)]
    options: Options,
}

/// List principals with their tokens and rules; never a secret, nor a hash.
#[derive(Args, Debug)]
struct List {
    #[command(flatten)]
    options: Options,
}

/// Remove a token by its id. Its principal and the rules stay, and so do the principal's locks.
#[derive(Args, Debug)]
struct Revoke {
    /// The token's id, the part behind `klt_`; `keylatch token list` shows it.
    id: String,
    #[command(flatten)]
    options: Options,
}

impl Token {
    pub(crate) fn is_json(&self) -> bool {
        let options = match &self.command {
            Command::Create(create) => &create.options,
            Command::List(list) => &list.options,
            Command::Revoke(revoke) => &revoke.options,
        };
        options.form.is_json()
    }

    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Create(create) => create.run()?,
            Command::List(list) => list.run()?,
            Command::Revoke(revoke) => revoke.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Create {
    fn run(self) -> Result<()> {
        let (form, path) = (&self.options.form, self.options.path()?);
        let store = Store::open(&path)?;
        let token = NewToken::generate().context("there are no random numbers")?;
        let created = rfc3339(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?);
        let added = edit::Added { principal: &self.name, token: &token, created: &created };
        store.write(&edit::add(&path, store.text(), &added, self.grants.rules())?)?;
        let json = json!({
            "status": "created", "id": token.id(), "principal": self.name,
            "created": created, "token": token.reveal(), "file": path.to_string_lossy(),
        });
        if let Err(error) = form.print(&json, token.reveal()) {
            // If nobody learns the token, nobody can use it.
            store.write(store.text())?;
            return Err(error.into());
        }
        if !form.is_json() {
            let hint = format!(
                "this is the only time that the token is shown: keep it where only '{}' can read it. \
                 `keylatch token revoke {}` takes it back.",
                self.name,
                token.id()
            );
            form.tell(&Value::Null, hint);
        }
        Ok(())
    }
}

impl List {
    fn run(self) -> Result<()> {
        let form = &self.options.form;
        let access = Access::read(&self.options.path()?)?;
        let mut rows = Vec::new();
        for principal in access.principals() {
            let certificate = access.certificates().find(|(_, of)| of.name == principal.name);
            let certificate = certificate.map(|(common_name, _)| common_name);
            for (id, created) in tokens_of(&access, principal) {
                if form.is_json() {
                    form.print(&json_of(principal, id, created, certificate), "")?;
                    continue;
                }
                rows.push([
                    id.unwrap_or("-").to_owned(),
                    principal.name.to_string(),
                    created.unwrap_or("-").to_owned(),
                    certificate.unwrap_or("-").to_owned(),
                    rules(principal),
                ]);
            }
        }
        if !form.is_json() {
            let head = ["ID", "PRINCIPAL", "CREATED", "CERTIFICATE", "RULES"];
            form.print(&Value::Null, table::lay_out(&head, &rows))?;
        }
        Ok(())
    }
}

type Shown<'a> = (Option<&'a str>, Option<&'a str>);

/// The ids of a principal's tokens with their dates, oldest first; a principal without any is
/// shown all the same.
fn tokens_of<'a>(access: &'a Access, principal: &Principal) -> Vec<Shown<'a>> {
    let own = access.tokens().filter(|(_, token)| token.principal().name == principal.name);
    let mut own: Vec<Shown<'a>> = own.map(|(id, token)| (Some(id), token.created())).collect();
    own.sort_unstable_by_key(|(id, created)| (*created, *id));
    if own.is_empty() {
        own.push((None, None));
    }
    own
}

fn rules(principal: &Principal) -> String {
    let rules = principal.rules().iter().map(|rule| {
        let rights: Vec<&str> = rule.rights().map(Right::word).collect();
        format!("'{}' {}", rule.prefix(), rights.join(","))
    });
    rules.collect::<Vec<_>>().join("; ")
}

fn json_of(
    principal: &Principal,
    id: Option<&str>,
    created: Option<&str>,
    certificate: Option<&str>,
) -> Value {
    let rules = principal.rules().iter().map(|rule| {
        let rights: Vec<&str> = rule.rights().map(Right::word).collect();
        json!({"prefix": rule.prefix(), "rights": rights})
    });
    json!({
        "id": id, "principal": &*principal.name, "created": created, "certificate": certificate,
        "rules": rules.collect::<Vec<_>>(),
    })
}

impl Revoke {
    fn run(self) -> Result<()> {
        let (form, path) = (&self.options.form, self.options.path()?);
        // Whoever has the whole token at hand may say that.
        let id = self.id.strip_prefix("klt_").and_then(|rest| rest.split('_').next());
        let id = id.unwrap_or(&self.id);
        let store = Store::open(&path)?;
        let access = Access::parse(&path, store.text())?;
        let known = access.tokens().find(|(known, _)| *known == id);
        let (_, token) = known.ok_or_else(|| NoToken(id.to_owned()))?;
        let principal = &token.principal().name;
        store.write(&edit::remove(&path, store.text(), id)?)?;
        let json = json!({"status": "revoked", "id": id, "principal": &**principal});
        let text = format!(
            "revoked the token {id} of '{principal}'; a running server knows it when it has read the \
             file again"
        );
        form.print(&json, text)?;
        Ok(())
    }
}
