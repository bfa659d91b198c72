//! What is asked about tasks: `/v1/tasks/{pool}/{key}`. A version that a change is about stands in
//! `If-Match`, as it came in an `ETag`.

use keylatch_table::{
    Checked, Command, Query, RequestId, TaskAction, TaskCommand, TaskState, TasksQuery, Text,
};

use super::head::Head;
use super::problem::Problem;
use super::route::{Asked, LIST, LIST_MOST, Op, no_query};
use super::{Kind, task_body};
use crate::turn::Context;

/// Tasks that are created together at most.
const TOGETHER: usize = 1_000;

pub(super) fn ask(
    op: Op,
    words: &[String],
    head: &Head,
    body: &[u8],
    context: &mut Context<'_>,
) -> Result<Asked, Problem> {
    if let Some(word) = words.iter().find(|word| word.len() as u64 > context.key_bytes) {
        let (got, most) = (word.len(), context.key_bytes);
        return Err(invalid(format!("a pool or key in the path has {got} bytes, at most {most}")));
    }
    let word = |at: usize| Text::from(words.get(at).map_or("", String::as_str));
    let (pool, key) = (word(0), word(1));
    let change = |id: Option<RequestId>, action, kind, context: &mut Context<'_>| {
        let id = id.unwrap_or_else(|| context.new_id());
        let command = TaskCommand { id, pool: pool.clone(), action };
        Asked::Change(Command::Task(command), kind)
    };
    let checked = |version| Checked { key: key.clone(), version };
    Ok(match op {
        Op::Pools => {
            no_query(head)?;
            Asked::Question(Query::Pools, Kind::Pools)
        }
        Op::ListTasks => {
            let query = list(pool, &head.query)?;
            let limit = query.limit;
            Asked::Question(Query::Tasks(query), Kind::Tasks(limit))
        }
        Op::ShowTask => {
            no_query(head)?;
            let if_none_match = head.if_none_match.clone();
            Asked::Question(Query::Task(pool, key), Kind::ShowTask { if_none_match })
        }
        Op::CreateTasks => return create(&pool, body, context),
        Op::Claim => {
            let (id, claim) = task_body::claim(body, context)?;
            let kind = Kind::Claim(id.clone());
            change(Some(id), TaskAction::Claim(claim), kind, context)
        }
        Op::Retry => {
            let (id, key) = task_body::retry(body)?;
            change(id, TaskAction::Retry(key), Kind::Task, context)
        }
        Op::DeleteTask => {
            let version = match if_match(head)? {
                Some(Wanted::Version(version)) => Some(version),
                Some(Wanted::Any) | None => None,
            };
            change(None, TaskAction::Delete(key, version), Kind::Task, context)
        }
        Op::UpdateTask => {
            let version = version(head)?;
            let (id, body, lease_ms) = task_body::update(body)?;
            let action = TaskAction::Update(checked(version), body, lease_ms);
            change(id, action, Kind::Task, context)
        }
        Op::Finish => {
            let version = version(head)?;
            let id = task_body::finish(body)?;
            change(id, TaskAction::Finish(checked(version)), Kind::Task, context)
        }
        Op::PutBack => {
            let version = version(head)?;
            let (id, back) = task_body::put_back(body)?;
            change(id, TaskAction::PutBack(checked(version), back), Kind::Task, context)
        }
        other => unreachable!("not about tasks: {other:?}"),
    })
}

fn invalid(text: String) -> Problem {
    Problem::new(400, "invalid", text)
}

fn create(pool: &Text, body: &[u8], context: &mut Context<'_>) -> Result<Asked, Problem> {
    let mut command = |(id, create): (Option<RequestId>, _)| {
        let id = id.unwrap_or_else(|| context.new_id());
        let action = TaskAction::Create(create);
        TaskCommand { id, pool: pool.clone(), action }
    };
    match task_body::create(body)? {
        task_body::Created::One(id, create) => {
            let kind = Kind::Create { pool: pool.clone(), key: create.key.clone() };
            Ok(Asked::Change(Command::Task(command((id, create))), kind))
        }
        task_body::Created::Many(tasks) if tasks.is_empty() || tasks.len() > TOGETHER => {
            Err(invalid(format!("`tasks` has from 1 to {TOGETHER} tasks, not {}", tasks.len())))
        }
        task_body::Created::Many(tasks) => {
            let keys = tasks.iter().map(|(_, create)| create.key.clone()).collect();
            let commands: Vec<TaskCommand> = tasks.into_iter().map(command).collect();
            // What is wrong with one can be seen before any of them is there.
            for (at, command) in commands.iter().enumerate() {
                if let Some(error) = context.task_error(command) {
                    return Err(invalid(format!("`tasks`, at {at}: {error}")));
                }
            }
            let commands = commands.into_iter().map(Command::Task).collect();
            Ok(Asked::Changes(commands, Kind::CreateMany(keys)))
        }
    }
}

/// No task has it.
const NO_VERSION: u64 = 0;

/// What `If-Match` says.
enum Wanted {
    Any,
    Version(u64),
}

fn if_match(head: &Head) -> Result<Option<Wanted>, Problem> {
    let Some(said) = head.if_match.as_deref().map(str::trim) else { return Ok(None) };
    if said == "*" {
        return Ok(Some(Wanted::Any));
    }
    let weak = said.starts_with("W/");
    let tag = said.trim_start_matches("W/").strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
    let Some(tag) = tag.filter(|tag| !tag.contains('"')) else {
        return Err(invalid("If-Match is one version in quotes, as the ETag has it".into()));
    };
    // No task has, or had, another tag than a number as we write it; a weak one never matches. Whether there is
    // such a task at all comes first: where there is none, no condition counts (RFC 9110, 13.2.1).
    let version = tag.parse::<u64>().ok().filter(|version| !weak && version.to_string() == tag);
    Ok(Some(Wanted::Version(version.unwrap_or(NO_VERSION))))
}

/// A version, without which the change is not made.
fn version(head: &Head) -> Result<u64, Problem> {
    match if_match(head)? {
        Some(Wanted::Version(version)) => Ok(version),
        Some(Wanted::Any) => {
            Err(invalid("If-Match: * is whatever version there is; say the one you saw".into()))
        }
        None => {
            let text = "say If-Match: the version that the task was claimed with, in quotes";
            Err(Problem::new(428, "version_required", text.into()))
        }
    }
}

fn list(pool: Text, query: &str) -> Result<TasksQuery, Problem> {
    let mut found = TasksQuery { pool, state: None, prefix: None, limit: LIST, cursor: 0 };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let number = || {
            value.parse::<u64>().map_err(|_| invalid(format!("{name}: '{value}' is not a number")))
        };
        match &*name {
            "state" => {
                let known = "free, claimed, done, failed";
                let state = TaskState::ALL.into_iter().find(|state| state.word() == value);
                let state = state
                    .ok_or_else(|| invalid(format!("state: '{value}' is not one of {known}")))?;
                found.state = Some(state);
            }
            "prefix" => found.prefix = Some((*value).into()),
            "limit" => {
                found.limit = match number()? {
                    limit if (1..=LIST_MOST as u64).contains(&limit) => limit as usize,
                    _ => return Err(invalid(format!("limit is from 1 to {LIST_MOST}"))),
                }
            }
            "cursor" => found.cursor = number()?,
            _ => {
                let known = "state, prefix, limit, cursor";
                return Err(invalid(format!("there is no '{name}' here; there are {known}")));
            }
        }
    }
    Ok(found)
}
