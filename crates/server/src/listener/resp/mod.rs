//! RESP2 and RESP3: the words of `keylatch-wire` as commands of the table, and its replies as maps.

mod answer;
mod events;
mod tasks;

use keylatch_table::{Acquire, Command, Extra, Keyed, KeyedOp, Party, Query, Resource, Target};
use keylatch_wire::{
    Arguments, ClientRequest, Hello, KeyRequest, Limits, Lock, Protocol, Request, SetRequest,
    Writer, read_arguments,
};

use super::{Answer as AnyAnswer, Ask, Fresh, Read};
use crate::turn::{Context, LOG_IN};

pub(crate) use answer::{Answer, cause, state, write_answer, write_found, write_outcome};
pub(crate) use events::{event_as_json, write_outcome_of, write_push};
pub(crate) use tasks::{json_error, page};

/// The channel on which all events can be had.
pub(crate) const EVENTS: &str = "keylatch:events";

/// What a connection has said about itself.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) protocol: Protocol,
    name: Option<Box<str>>,
    subscribed: bool,
    arguments: Arguments,
}

/// What a request changes about its own connection.
#[derive(Default)]
pub(crate) struct Changes {
    /// What is shown as its owner from now on.
    pub(crate) shown: Option<Box<str>>,
    pub(crate) subscribed: Option<bool>,
    pub(crate) close: bool,
    /// The request may have to wait, and what follows waits with it.
    pub(crate) may_block: bool,
}

impl Session {
    /// Reads the next request.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) -> Read {
        let limits = Limits { frame: context.frame_bytes, ..Limits::default() };
        let taken = match read_arguments(input, limits, &mut self.arguments) {
            Ok(Some(taken)) => taken,
            Ok(None) => return Read::Incomplete,
            Err(error) => {
                return Read::Broken(
                    self.say(|writer| writer.error("PROTOCOL", &error.to_string())),
                );
            }
        };
        if self.arguments.is_empty() {
            return Read::Nothing(taken);
        }
        let ask = match Request::read(input, &self.arguments) {
            Ok(request) => self.ask(request, context, changes),
            Err(error) => Ask::Say(self.say(|writer| writer.error(error.code, &error.text))),
        };
        Read::Ask(taken, ask)
    }

    fn say(&self, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut Writer { out: &mut out, protocol: self.protocol });
        out
    }

    fn ask(&mut self, request: Request, context: &mut Context<'_>, changes: &mut Changes) -> Ask {
        let greets = matches!(request, Request::Auth(_) | Request::Hello(_) | Request::Quit);
        if context.must_log_in() && !greets {
            context.refuse("ask", LOG_IN);
            return Ask::Say(self.say(|writer| writer.error("NOAUTH", LOG_IN)));
        }
        let change = |command, answer| Ask::Change(command, AnyAnswer::Resp(answer));
        let id = |id| Target::Id(id);
        match request {
            Request::Set(set) => change(set_command(set, context), Answer::Set),
            Request::Lock(lock) => {
                let asynchronous = lock.asynchronous;
                changes.may_block = lock.wait_ms > 0 && !asynchronous;
                let ask = lock_command(*lock, context);
                let answer = Answer::Lock { id: ask.id.clone(), asynchronous };
                change(Command::Acquire(ask), answer)
            }
            Request::Unlock(target) => {
                change(Command::Release(id(target.clone())), Answer::Unlock(target))
            }
            Request::Cancel(target) => change(Command::Cancel(id(target)), Answer::Cancel),
            Request::Renew(target, lease_ms) => {
                change(Command::Renew(id(target), lease_ms), Answer::Renew)
            }
            Request::Promote(target) => change(Command::Promote(id(target)), Answer::Promote),
            Request::Revoke(token, reason) => {
                change(Command::Revoke(token, reason.into()), Answer::Revoke(token))
            }
            Request::Task(request) => match tasks::ask(request, context, changes) {
                Ok(ask) => ask,
                Err(text) => Ask::Say(self.say(|writer| writer.error("BADARG", &text))),
            },
            Request::Locks { query, stale } => {
                let (queries, answer) = (vec![Query::Locks(query)], AnyAnswer::Resp(Answer::Locks));
                Ask::Question(queries, answer, Fresh::or_stale(stale))
            }
            Request::Key(request) => key_ask(request),
            other => Ask::Say(self.own(other, context, changes)),
        }
    }

    /// What concerns only the connection itself.
    fn own(
        &mut self,
        request: Request,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) -> Vec<u8> {
        match request {
            // A client that has subscribed reads nothing but messages, of which this is one.
            Request::Ping(text) if self.subscribed && self.protocol == Protocol::Resp2 => {
                self.say(|writer| {
                    writer.array(2);
                    writer.bulk(b"pong");
                    writer.bulk(text.as_deref().unwrap_or_default());
                })
            }
            Request::Ping(None) => self.say(|writer| writer.simple("PONG")),
            Request::Ping(Some(text)) | Request::Echo(text) => {
                self.say(|writer| writer.bulk(&text))
            }
            Request::Hello(hello) => self.hello(hello, context, changes),
            Request::Auth(token) => match self.log_in(&token, context) {
                Ok(()) => self.say(|writer| writer.simple("OK")),
                Err(refusal) => refusal,
            },
            Request::Info => self.say(|writer| writer.bulk(context.info().as_bytes())),
            Request::Client(request) => self.client(request, context, changes),
            Request::Command => self.say(|writer| writer.array(0)),
            Request::Select(0) => self.say(|writer| writer.simple("OK")),
            Request::Select(_) => self.say(|writer| {
                writer.error("BADARG", "there is one database, 0");
            }),
            Request::Subscribe(_) if !context.may_observe_all() => {
                let text = "events are those of all names: this needs `observe` on every name";
                context.refuse("EVENTS", text);
                self.say(|writer| writer.error("NOPERM", text))
            }
            Request::Subscribe(channels) => self.subscribe(&channels, changes, true),
            Request::Unsubscribe(channels) => self.subscribe(&channels, changes, false),
            Request::Quit => {
                changes.close = true;
                self.say(|writer| writer.simple("OK"))
            }
            _ => unreachable!("asked of the table"),
        }
    }

    /// Says who it is, or why not.
    fn log_in(&self, token: &str, context: &mut Context<'_>) -> Result<(), Vec<u8>> {
        if !context.has_tokens() {
            let text = "this server has no tokens; connect without AUTH";
            return Err(self.say(|writer| writer.error("NOAUTH", text)));
        }
        match context.log_in(token) {
            true => Ok(()),
            false => Err(self.say(|writer| writer.error("WRONGPASS", "this token is not known"))),
        }
    }

    fn hello(&mut self, hello: Hello, context: &mut Context<'_>, changes: &mut Changes) -> Vec<u8> {
        if let Some(token) = &hello.auth
            && let Err(refusal) = self.log_in(token, context)
        {
            return refusal;
        }
        if context.must_log_in() {
            context.refuse("HELLO", LOG_IN);
            return self.say(|writer| writer.error("NOAUTH", LOG_IN));
        }
        let fault = hello.name.as_deref().and_then(|name| name_fault(name, context));
        if let Some((code, fault)) = fault {
            return self.say(|writer| writer.error(code, &fault));
        }
        match hello.version {
            None => {}
            Some(2) => self.protocol = Protocol::Resp2,
            Some(3) => self.protocol = Protocol::Resp3,
            Some(_) => {
                return self.say(|writer| writer.error("NOPROTO", "HELLO takes 2 or 3"));
            }
        }
        if let Some(name) = hello.name {
            self.set_name(name, changes);
        }
        let version = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        self.say(|writer| {
            writer.map(7);
            let mut pair = |name: &str, value: &str| {
                writer.bulk(name.as_bytes());
                writer.bulk(value.as_bytes());
            };
            pair("server", "keylatch");
            pair("version", env!("CARGO_PKG_VERSION"));
            pair("mode", "standalone");
            pair("role", "master");
            writer.bulk(b"proto");
            writer.integer(version);
            writer.bulk(b"id");
            writer.unsigned(context.connection.number);
            writer.bulk(b"modules");
            writer.array(0);
        })
    }

    fn client(
        &mut self,
        request: ClientRequest,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) -> Vec<u8> {
        match request {
            ClientRequest::Id => self.say(|writer| writer.unsigned(context.connection.number)),
            ClientRequest::GetName => self.say(|writer| match &self.name {
                Some(name) => writer.bulk(name.as_bytes()),
                None => writer.null(),
            }),
            ClientRequest::SetName(name) => {
                if let Some((code, fault)) = name_fault(&name, context) {
                    return self.say(|writer| writer.error(code, &fault));
                }
                self.set_name(name, changes);
                self.say(|writer| writer.simple("OK"))
            }
            ClientRequest::Ignored => self.say(|writer| writer.simple("OK")),
        }
    }

    fn set_name(&mut self, name: Box<str>, changes: &mut Changes) {
        changes.shown = Some(name.clone());
        self.name = Some(name);
    }

    fn subscribe(&mut self, channels: &[Box<str>], changes: &mut Changes, on: bool) -> Vec<u8> {
        let all = [Box::from(EVENTS)];
        let channels = if channels.is_empty() { &all } else { channels };
        if let Some(other) = channels.iter().find(|channel| ***channel != *EVENTS) {
            let text = format!("there is no channel '{other}'; subscribe to {EVENTS}");
            return self.say(|writer| writer.error("BADARG", &text));
        }
        changes.subscribed = Some(on);
        self.subscribed = on;
        let kind: &[u8] = if on { b"subscribe" } else { b"unsubscribe" };
        self.say(|writer| {
            writer.push(3);
            writer.bulk(kind);
            writer.bulk(EVENTS.as_bytes());
            writer.integer(i64::from(on));
        })
    }
}

fn lock_command(lock: Lock, context: &mut Context<'_>) -> Acquire {
    let id = lock.id.unwrap_or_else(|| context.new_id());
    let party = match &lock.owner {
        Some(owner) => Party { principal: context.principal(), ..Party::owner(owner) },
        None => context.party(),
    };
    let extra = Extra { max_hold_ms: lock.max_hold_ms, meta: lock.meta, ..Extra::default() };
    Acquire {
        also: lock.also,
        wait_ms: lock.wait_ms,
        lease_ms: lock.lease_ms,
        detect: lock.detect,
        extra: extra.into(),
        id,
        party,
        part: lock.part,
    }
}

/// What is wrong with a connection's name, which is shown as an owner.
fn name_fault(name: &str, context: &Context<'_>) -> Option<(&'static str, String)> {
    let most = context.owner_bytes;
    match name.len() as u64 {
        0 => Some(("BADARG", "the name is empty".into())),
        bytes if bytes > most => {
            Some(("LIMIT", format!("the name is longer than {most} bytes, the bound for owners")))
        }
        _ => None,
    }
}

fn set_command(set: SetRequest, context: &mut Context<'_>) -> Command {
    let ask = Acquire::new(context.new_id(), set.key, context.party());
    Command::Acquire(Acquire { lease_ms: set.lease_ms, extra: set.value.into(), ..ask })
}

fn key_ask(request: KeyRequest) -> Ask {
    let question = |keys: Vec<Resource>, answer| {
        let queries = keys.into_iter().map(Query::Key).collect();
        Ask::Question(queries, AnyAnswer::Resp(answer), Fresh::Latest)
    };
    let change = |keys, op, answer| {
        let keyed = Keyed { keys, value: None, all: false, op };
        Ask::Change(Command::Keyed(keyed), AnyAnswer::Resp(answer))
    };
    match request {
        KeyRequest::Get(key) => question(vec![key], Answer::Get),
        KeyRequest::Exists(keys) => question(keys, Answer::Exists),
        KeyRequest::Pttl(key) => question(vec![key], Answer::Pttl),
        KeyRequest::Del(keys) => change(keys, KeyedOp::Delete, Answer::Count),
        KeyRequest::Pexpire(key, ms) => change(vec![key], KeyedOp::Expire(ms), Answer::Count),
    }
}
