//! `TASK ..`: creating tasks, claiming them, and what becomes of them. A change is read into the
//! command of the table, but for what only the server knows: an id if there is none, and what is
//! shown for a worker that names no owner.

use keylatch_table::{
    Body, Checked, Claim, Create, Party, PutBack, RequestId, TaskAction, TaskState, TasksQuery,
    Text,
};

use crate::arguments::{Capitals, Words};
use crate::frame::Arguments;
use crate::request::WordError;

const USAGE: &str = "TASK CREATE|CLAIM|UPDATE|DONE|BACK|DELETE|RETRY|CANCEL|GET|LIST|COUNTS ..";

/// The lease of a claim that names none.
const LEASE_MS: u64 = 60_000;

/// Something about tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskRequest {
    /// `CREATE`, `CLAIM`, `UPDATE`, `DONE`, `BACK`, `DELETE`, `RETRY`, `CANCEL`.
    Change(Box<TaskChange>),
    /// `GET`, `LIST`, `COUNTS`; with `STALE` as the member that is asked knows it, without asking who leads.
    Question {
        /// What is asked.
        question: TaskQuestion,
        /// Also what may be old.
        stale: bool,
    },
}

/// A question about tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskQuestion {
    /// `GET pool key`.
    Get(Text, Text),
    /// `LIST pool ..`.
    List(TasksQuery),
    /// `COUNTS [pool]`.
    Counts(Option<Text>),
}

impl From<TaskQuestion> for TaskRequest {
    fn from(question: TaskQuestion) -> TaskRequest {
        TaskRequest::Question { question, stale: false }
    }
}

/// A change to tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    /// Chosen by the caller; the server makes one if there is none.
    pub id: Option<RequestId>,
    /// The pool; empty for `CANCEL`, which is about an id.
    pub pool: Text,
    /// What to do there. The party of a claim without an owner is not explicit, and the server fills
    /// it in.
    pub action: TaskAction,
    /// Of a claim: answer `waiting` at once and push the outcome.
    pub asynchronous: bool,
}

pub(crate) fn read_task(buffer: &[u8], arguments: &Arguments) -> Result<TaskRequest, WordError> {
    let words = |usage| Words::new(buffer, arguments, 2, usage);
    let Some(what) = arguments.get(buffer, 1) else {
        return Err(words(USAGE).syntax("what to do is missing"));
    };
    match Capitals::of(what).as_bytes() {
        b"CREATE" => read_create(words(
            "TASK CREATE pool key [BODY b] [JSON] [PRIORITY n] [DELAY ms] [ATTEMPTS n] [ID id]",
        )),
        b"CLAIM" => read_claim(words(
            "TASK CLAIM pool [KEY k] [OWNER o] [WAIT ms] [LEASE ms] [ID id] [ASYNC]",
        )),
        b"UPDATE" => {
            read_update(words("TASK UPDATE pool key VERSION v [BODY b] [JSON] [LEASE ms] [ID id]"))
        }
        b"DONE" => read_done(words("TASK DONE pool key VERSION v [ID id]")),
        b"BACK" => read_back(words("TASK BACK pool key VERSION v [DELAY ms] [ERROR text] [ID id]")),
        b"DELETE" => read_delete(words("TASK DELETE pool key [VERSION v] [ID id]")),
        b"RETRY" => read_retry(words("TASK RETRY pool [KEY k] [ID id]")),
        b"CANCEL" => {
            let mut words = words("TASK CANCEL id");
            let id = Some(words.text("the id")?.into());
            words.end()?;
            Ok(change("".into(), id, TaskAction::Cancel))
        }
        b"GET" => {
            let mut words = words("TASK GET pool key [STALE]");
            let (pool, key) = read_key(&mut words)?;
            let stale = match words.next() {
                None => false,
                Some(word) if Capitals::of(word).as_bytes() == b"STALE" => true,
                Some(word) => return Err(words.unknown(word)),
            };
            words.end()?;
            Ok(TaskRequest::Question { question: TaskQuestion::Get(pool, key), stale })
        }
        b"LIST" => read_list(words(
            "TASK LIST pool [STATE free|claimed|done|failed] [PREFIX p] [LIMIT n] [CURSOR number] [STALE]",
        )),
        b"COUNTS" => read_counts(words("TASK COUNTS [pool] [STALE|LATEST]")),
        _ => Err(words(USAGE).unknown(what)),
    }
}

fn change(pool: Text, id: Option<RequestId>, action: TaskAction) -> TaskRequest {
    TaskRequest::Change(Box::new(TaskChange { id, pool, action, asynchronous: false }))
}

fn read_key(words: &mut Words<'_>) -> Result<(Text, Text), WordError> {
    Ok((words.text("the pool")?.into(), words.text("the key")?.into()))
}

/// `BODY` and `JSON`, which stands for what kind of body it is.
#[derive(Default)]
struct BodyWords {
    bytes: Option<Box<[u8]>>,
    json: bool,
}

impl BodyWords {
    fn body(self, words: &Words<'_>) -> Result<Option<Body>, WordError> {
        match self.bytes {
            Some(bytes) => Ok(Some(Body { json: self.json, bytes: bytes.into() })),
            None if self.json => Err(words.syntax("JSON says what BODY is, and there is none")),
            None => Ok(None),
        }
    }
}

fn read_create(mut words: Words<'_>) -> Result<TaskRequest, WordError> {
    let (pool, key) = read_key(&mut words)?;
    let mut create = Create { key, body: None, priority: 0, delay_ms: 0, attempts: None };
    let (mut body, mut id) = (BodyWords::default(), None);
    while let Some(word) = words.next() {
        words.once(word)?;
        match Capitals::of(word).as_bytes() {
            b"BODY" => body.bytes = Some(words.bytes("BODY")?.into()),
            b"JSON" => body.json = true,
            b"PRIORITY" => create.priority = words.signed("PRIORITY")?,
            b"DELAY" => create.delay_ms = words.number("DELAY")?,
            b"ATTEMPTS" => {
                let attempts = words.number("ATTEMPTS")?;
                let fits = u32::try_from(attempts);
                create.attempts = Some(fits.map_err(|_| {
                    let text = format!("ATTEMPTS is at most {}, not {attempts}", u32::MAX);
                    WordError::new("BADARG", text)
                })?);
            }
            b"ID" => id = Some(words.text("ID")?.into()),
            _ => return Err(words.unknown(word)),
        }
    }
    create.body = body.body(&words)?;
    Ok(change(pool, id, TaskAction::Create(create)))
}

fn read_claim(mut words: Words<'_>) -> Result<TaskRequest, WordError> {
    let pool = words.text("the pool")?.into();
    let party = Party::client("");
    let mut claim = Claim { key: None, party, wait_ms: 0, lease_ms: LEASE_MS };
    let (mut id, mut asynchronous) = (None, false);
    while let Some(word) = words.next() {
        words.once(word)?;
        match Capitals::of(word).as_bytes() {
            b"KEY" => claim.key = Some(words.text("KEY")?.into()),
            b"OWNER" => claim.party = Party::owner(words.text("OWNER")?),
            b"WAIT" => claim.wait_ms = words.number("WAIT")?,
            b"LEASE" => claim.lease_ms = words.number("LEASE")?,
            b"ID" => id = Some(words.text("ID")?.into()),
            b"ASYNC" => asynchronous = true,
            _ => return Err(words.unknown(word)),
        }
    }
    let action = TaskAction::Claim(claim);
    Ok(TaskRequest::Change(Box::new(TaskChange { id, pool, action, asynchronous })))
}

/// Pool, key and version, without which nothing is written.
fn read_checked(words: &mut Words<'_>) -> Result<(Text, Checked), WordError> {
    let (pool, key) = read_key(words)?;
    match words.next() {
        Some(word) if Capitals::of(word).as_bytes() == b"VERSION" => {}
        _ => {
            return Err(
                words.syntax("VERSION is missing: the one that the claim was answered with")
            );
        }
    }
    let version = words.number("VERSION")?;
    Ok((pool, Checked { key, version }))
}

fn read_update(mut words: Words<'_>) -> Result<TaskRequest, WordError> {
    let (pool, checked) = read_checked(&mut words)?;
    let (mut body, mut lease_ms, mut id) = (BodyWords::default(), None, None);
    while let Some(word) = words.next() {
        words.once(word)?;
        match Capitals::of(word).as_bytes() {
            b"BODY" => body.bytes = Some(words.bytes("BODY")?.into()),
            b"JSON" => body.json = true,
            b"LEASE" => lease_ms = Some(words.number("LEASE")?),
            b"ID" => id = Some(words.text("ID")?.into()),
            _ => return Err(words.unknown(word)),
        }
    }
    let body = body.body(&words)?;
    Ok(change(pool, id, TaskAction::Update(checked, body, lease_ms)))
}

/// `[ID id]`, and nothing else.
fn read_id(words: &mut Words<'_>) -> Result<Option<RequestId>, WordError> {
    let id = match words.next() {
        None => None,
        Some(word) if Capitals::of(word).as_bytes() == b"ID" => Some(words.text("ID")?.into()),
        Some(word) => return Err(words.unknown(word)),
    };
    words.end()?;
    Ok(id)
}

fn read_done(mut words: Words<'_>) -> Result<TaskRequest, WordError> {
    let (pool, checked) = read_checked(&mut words)?;
    let id = read_id(&mut words)?;
    Ok(change(pool, id, TaskAction::Finish(checked)))
}

fn read_back(mut words: Words<'_>) -> Result<TaskRequest, WordError> {
    let (pool, checked) = read_checked(&mut words)?;
    let (mut back, mut id) = (PutBack::default(), None);
    while let Some(word) = words.next() {
        words.once(word)?;
        match Capitals::of(word).as_bytes() {
            b"DELAY" => back.delay_ms = words.number("DELAY")?,
            b"ERROR" => back.error = Some(words.text("ERROR")?.into()),
            b"ID" => id = Some(words.text("ID")?.into()),
            _ => return Err(words.unknown(word)),
        }
    }
    Ok(change(pool, id, TaskAction::PutBack(checked, back)))
}

fn read_delete(mut words: Words<'_>) -> Result<TaskRequest, WordError> {
    let (pool, key) = read_key(&mut words)?;
    let (mut version, mut id) = (None, None);
    while let Some(word) = words.next() {
        words.once(word)?;
        match Capitals::of(word).as_bytes() {
            b"VERSION" => version = Some(words.number("VERSION")?),
            b"ID" => id = Some(words.text("ID")?.into()),
            _ => return Err(words.unknown(word)),
        }
    }
    Ok(change(pool, id, TaskAction::Delete(key, version)))
}

fn read_retry(mut words: Words<'_>) -> Result<TaskRequest, WordError> {
    let pool = words.text("the pool")?.into();
    let (mut key, mut id) = (None, None);
    while let Some(word) = words.next() {
        words.once(word)?;
        match Capitals::of(word).as_bytes() {
            b"KEY" => key = Some(words.text("KEY")?.into()),
            b"ID" => id = Some(words.text("ID")?.into()),
            _ => return Err(words.unknown(word)),
        }
    }
    Ok(change(pool, id, TaskAction::Retry(key)))
}

fn read_list(mut words: Words<'_>) -> Result<TaskRequest, WordError> {
    let pool = words.text("the pool")?.into();
    let mut query = TasksQuery { pool, state: None, prefix: None, limit: 0, cursor: 0 };
    let mut stale = false;
    while let Some(word) = words.next() {
        words.once(word)?;
        match Capitals::of(word).as_bytes() {
            b"STATE" => {
                let state = words.text("STATE")?;
                let known = TaskState::from_word(state);
                query.state =
                    Some(known.ok_or_else(|| words.syntax(&format!("'{state}' is not a state")))?);
            }
            b"PREFIX" => query.prefix = Some(words.text("PREFIX")?.into()),
            b"LIMIT" => query.limit = words.number("LIMIT")? as usize,
            b"CURSOR" => query.cursor = words.number("CURSOR")?,
            b"STALE" => stale = true,
            _ => return Err(words.unknown(word)),
        }
    }
    Ok(TaskRequest::Question { question: TaskQuestion::List(query), stale })
}

/// `STALE` alone is no pool; with a word behind it it is, so that a pool may be called so.
fn read_counts(mut words: Words<'_>) -> Result<TaskRequest, WordError> {
    let first = match words.left() {
        0 => None,
        _ => Some(words.text("the pool")?),
    };
    let (pool, stale) = match words.next() {
        None if first.is_some_and(is_stale) => (None, true),
        None => (first, false),
        Some(word) => match Capitals::of(word).as_bytes() {
            b"STALE" => (first, true),
            b"LATEST" => (first, false),
            _ => return Err(words.unknown(word)),
        },
    };
    words.end()?;
    let pool = pool.map(Into::into);
    Ok(TaskRequest::Question { question: TaskQuestion::Counts(pool), stale })
}

fn is_stale(word: &str) -> bool {
    word.eq_ignore_ascii_case("STALE")
}

/// Appends a `TASK` request to a buffer, as a client sends it.
pub fn write_task(request: &TaskRequest, out: &mut Vec<u8>) {
    let mut words = Written::default();
    match request {
        TaskRequest::Change(change) => words.change(change),
        TaskRequest::Question { question, stale } => words.question(question, *stale),
    }
    let mut writer = crate::Writer { out, protocol: crate::Protocol::Resp2 };
    writer.array(1 + words.0.len());
    writer.bulk(b"TASK");
    for word in &words.0 {
        writer.bulk(word);
    }
}

/// The words behind `TASK`.
#[derive(Default)]
struct Written(Vec<Vec<u8>>);

impl Written {
    fn all(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(|word| word.as_bytes().to_vec()));
    }

    fn number(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.all(&[name, &value.to_string()]);
        }
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.all(&[name, value]);
        }
    }

    fn body(&mut self, body: Option<&Body>) {
        let Some(body) = body else { return };
        self.all(&["BODY"]);
        self.0.push(body.bytes.to_vec());
        if body.json {
            self.all(&["JSON"]);
        }
    }

    fn checked(&mut self, word: &str, pool: &str, checked: &Checked) {
        self.all(&[word, pool, &checked.key]);
        self.number("VERSION", Some(checked.version));
    }

    fn change(&mut self, change: &TaskChange) {
        let pool = &*change.pool;
        match &change.action {
            TaskAction::Create(create) => {
                self.all(&["CREATE", pool, &create.key]);
                self.body(create.body.as_ref());
                if create.priority != 0 {
                    self.all(&["PRIORITY", &create.priority.to_string()]);
                }
                self.number("DELAY", (create.delay_ms > 0).then_some(create.delay_ms));
                self.number("ATTEMPTS", create.attempts.map(u64::from));
            }
            TaskAction::Claim(claim) => {
                self.all(&["CLAIM", pool]);
                self.text("KEY", claim.key.as_deref());
                self.text("OWNER", claim.party.explicit.then_some(&*claim.party.owner));
                self.number("WAIT", (claim.wait_ms > 0).then_some(claim.wait_ms));
                self.number("LEASE", (claim.lease_ms != LEASE_MS).then_some(claim.lease_ms));
            }
            TaskAction::Update(checked, body, lease_ms) => {
                self.checked("UPDATE", pool, checked);
                self.body(body.as_ref());
                self.number("LEASE", *lease_ms);
            }
            TaskAction::Finish(checked) => self.checked("DONE", pool, checked),
            TaskAction::PutBack(checked, back) => {
                self.checked("BACK", pool, checked);
                self.number("DELAY", (back.delay_ms > 0).then_some(back.delay_ms));
                self.text("ERROR", back.error.as_deref());
            }
            TaskAction::Delete(key, version) => {
                self.all(&["DELETE", pool, key]);
                self.number("VERSION", *version);
            }
            TaskAction::Retry(key) => {
                self.all(&["RETRY", pool]);
                self.text("KEY", key.as_deref());
            }
            TaskAction::Cancel => {
                let id = change.id.as_ref().map(ToString::to_string).unwrap_or_default();
                return self.all(&["CANCEL", &id]);
            }
        }
        self.text("ID", change.id.as_ref().map(ToString::to_string).as_deref());
        if change.asynchronous {
            self.all(&["ASYNC"]);
        }
    }

    fn question(&mut self, question: &TaskQuestion, stale: bool) {
        match question {
            TaskQuestion::Get(pool, key) => self.all(&["GET", pool, key]),
            TaskQuestion::List(query) => self.list(query),
            TaskQuestion::Counts(pool) => {
                self.all(&["COUNTS"]);
                self.all(pool.as_deref().as_slice());
                if !stale && pool.as_deref().is_some_and(is_stale) {
                    self.all(&["LATEST"]);
                }
            }
        }
        if stale {
            self.all(&["STALE"]);
        }
    }

    fn list(&mut self, query: &TasksQuery) {
        self.all(&["LIST", &query.pool]);
        self.text("STATE", query.state.map(TaskState::word));
        self.text("PREFIX", query.prefix.as_deref());
        self.number("LIMIT", (query.limit > 0).then_some(query.limit as u64));
        self.number("CURSOR", (query.cursor > 0).then_some(query.cursor));
    }
}

#[cfg(test)]
#[path = "task_words_tests.rs"]
mod tests;
