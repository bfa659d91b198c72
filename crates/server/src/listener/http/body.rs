//! Bodies: JSON with the words that all interfaces share.

use keylatch_table::{Acquire, Extra, Field, Mode, Part, Party, Resource};
use keylatch_wire::read_field;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::problem::Problem;
use crate::listener::enqueue::js_number;
use crate::turn::Context;

/// What is asked for when nothing is said.
const LEASE_MS: u64 = 30_000;

/// `POST /v1/locks`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    name: Option<String>,
    argument: Option<Vec<Value>>,
    mode: Option<String>,
    resources: Option<Vec<Box<RawValue>>>,
    owner: Option<String>,
    lease_ms: Option<Whole>,
    #[serde(default)]
    wait_ms: Whole,
    id: Option<String>,
    meta: Option<String>,
    #[serde(default)]
    max_hold_ms: Whole,
    #[serde(default)]
    detect: bool,
}

/// One of several.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: String,
    #[serde(default)]
    argument: Vec<Value>,
    mode: Option<String>,
}

/// `POST /v1/locks/{id}/renew`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Renew {
    pub(super) lease_ms: Option<Whole>,
}

/// `POST /v1/locks/{id}/promote`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// A whole number, however it is written: in JSON `5.0` is one.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(try_from = "serde_json::Number")]
pub(super) struct Whole(pub(super) u64);

impl TryFrom<serde_json::Number> for Whole {
    type Error = String;

    fn try_from(number: serde_json::Number) -> Result<Whole, String> {
        #[expect(clippy::cast_sign_loss, reason = "not negative, checked here")]
        let whole = |number: f64| {
            let fits = number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number);
            fits.then_some(number as u64)
        };
        let value = number.as_u64().or_else(|| number.as_f64().and_then(whole));
        value.map(Whole).ok_or_else(|| format!("{number} is not a whole number of 0 or more"))
    }
}

/// `POST /v1/revoke`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Revoke {
    pub(super) token: Whole,
    pub(super) reason: String,
}

fn invalid(text: String) -> Problem {
    Problem::new(400, "invalid", text)
}

/// A body that must be there, and an object: a list of values without their names would do as well
/// for what reads it.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        return Err(invalid("the body: an object is expected, `{..}`".into()));
    }
    serde_json::from_slice(body).map_err(|error| invalid(format!("the body: {error}")))
}

pub(super) fn lock(body: &[u8], context: &mut Context<'_>) -> Result<Acquire, Problem> {
    let lock: Lock = parse(body)?;
    if lock.resources.as_ref().is_some_and(Vec::is_empty) {
        return Err(invalid("`resources` is empty; name at least one".into()));
    }
    let resources = lock.resources.unwrap_or_default();
    let mut parts = Vec::with_capacity(1 + resources.len());
    if let Some(name) = lock.name {
        let argument = lock.argument.unwrap_or_default();
        parts.push(part(&Wanted { name, argument, mode: lock.mode })?);
    } else if lock.argument.is_some() || lock.mode.is_some() {
        return Err(invalid(
            "`argument` and `mode` belong to a `name`, or into `resources`".into(),
        ));
    }
    for wanted in &resources {
        parts.push(part(&parse(wanted.get().as_bytes())?)?);
    }
    let mut parts = parts.into_iter();
    let Some(part) = parts.next() else {
        return Err(invalid("say what to lock: `name`, or `resources`".into()));
    };
    let id = match lock.id {
        Some(id) => keylatch_table::RequestId::new(&id),
        None => context.new_id(),
    };
    let party = match lock.owner {
        Some(owner) => Party { principal: context.principal(), ..Party::owner(&owner) },
        None => context.party(),
    };
    let meta = lock.meta.map(Into::into);
    let extra = Extra { max_hold_ms: lock.max_hold_ms.0, meta, ..Extra::default() };
    Ok(Acquire {
        id,
        part,
        also: parts.collect(),
        party,
        wait_ms: lock.wait_ms.0,
        lease_ms: lock.lease_ms.map_or(LEASE_MS, |whole| whole.0),
        detect: lock.detect,
        extra: extra.into(),
    })
}

fn part(wanted: &Wanted) -> Result<Part, Problem> {
    let mode = match wanted.mode.as_deref() {
        None => Mode::default(),
        Some(letter) => Mode::from_letter(letter).ok_or_else(|| {
            invalid(format!(
                "mode '{letter}' is not S (shared), E (exclusive), X or O (optimistic)"
            ))
        })?,
    };
    let items: Vec<Item> = wanted.argument.iter().map(item).collect::<Result<_, _>>()?;
    let fields: Vec<Field<'_>> = items.iter().map(Item::field).collect();
    let resource = Resource::new(&wanted.name, &fields);
    Ok(Part::new(resource.map_err(|error| invalid(error.to_string()))?, mode))
}

enum Item {
    Any,
    Text(String),
    Number(String),
    Bool(bool),
}

impl Item {
    fn field(&self) -> Field<'_> {
        match self {
            Item::Any => Field::Any,
            Item::Text(text) => Field::Text(text),
            Item::Number(text) => Field::Number(text),
            Item::Bool(value) => Field::Bool(*value),
        }
    }
}

/// `"@"` is any; a text that begins with `@` or `\` has a `\` before it.
fn item(value: &Value) -> Result<Item, Problem> {
    match value {
        Value::String(text) => match read_field(text) {
            Ok((_, true)) => Ok(Item::Any),
            Ok((text, false)) => Ok(Item::Text(text)),
            Err(error) => Err(invalid(error.text)),
        },
        Value::Bool(value) => Ok(Item::Bool(*value)),
        Value::Number(number) => match number.as_f64().filter(|number| number.is_finite()) {
            Some(number) => Ok(Item::Number(js_number(number))),
            None => Err(invalid(format!("{number} is too large for a field"))),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => Err(invalid(
            "a field of `argument` is a string, a number or a boolean; \"@\" is any".into(),
        )),
    }
}

/// A field as it is written in an answer.
pub(super) fn field(field: Field<'_>) -> Value {
    match field {
        Field::Any => "@".into(),
        Field::Text(text) if text.starts_with(['@', '\\']) => format!("\\{text}").into(),
        Field::Text(text) => text.into(),
        Field::Number(text) => text.parse::<f64>().map_or(Value::Null, number),
        Field::Bool(value) => value.into(),
    }
}

/// Whole numbers without a fraction, as everyone writes them.
fn number(value: f64) -> Value {
    let whole = value as i64;
    #[allow(clippy::float_cmp, clippy::cast_precision_loss)] // it is the same or it is not
    match whole as f64 == value && whole.unsigned_abs() < 1 << 53 {
        true => whole.into(),
        false => value.into(),
    }
}
