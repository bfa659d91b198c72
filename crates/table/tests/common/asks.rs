//! Requests from text.

use keylatch_table::{ANY, Acquire, Extra, Field, Mode, Part, Party, Resource};

/// A request that is being put together.
#[derive(Clone)]
pub(crate) struct Ask(pub(crate) Acquire);

/// `ask("a", "X tab(A,@) & S k")`: a request with id `a` that does not wait, with a lease of 30 s
/// and no explicit owner; its id is shown instead.
pub(crate) fn ask(id: &str, wanted: &str) -> Ask {
    let mut parts = wanted.split(" & ").map(|part| {
        let (mode, name) = part.split_once(' ').expect("MODE RESOURCE");
        Part::new(resource(name), Mode::from_letter(mode).expect("a mode"))
    });
    let first = parts.next().expect("at least one part");
    let mut ask = Acquire::new(id.into(), first.resource.clone(), Party::client(id));
    (ask.part, ask.also) = (first, parts.collect());
    Ask(ask)
}

impl Ask {
    pub(crate) fn owner(mut self, owner: &str) -> Ask {
        self.0.party = Party { principal: self.0.party.principal, ..Party::owner(owner) };
        self
    }

    /// No explicit owner; this is shown instead.
    pub(crate) fn shown(mut self, shown: &str) -> Ask {
        self.0.party = Party { principal: self.0.party.principal, ..Party::client(shown) };
        self
    }

    pub(crate) fn principal(mut self, principal: &str) -> Ask {
        self.0.party.principal = Some(principal.into());
        self
    }

    pub(crate) fn wait(mut self, wait_ms: u64) -> Ask {
        self.0.wait_ms = wait_ms;
        self
    }

    pub(crate) fn lease(mut self, lease_ms: u64) -> Ask {
        self.0.lease_ms = lease_ms;
        self
    }

    pub(crate) fn detect(mut self) -> Ask {
        self.0.detect = true;
        self
    }

    pub(crate) fn max_hold(mut self, max_hold_ms: u64) -> Ask {
        self.extra(|extra| extra.max_hold_ms = max_hold_ms);
        self
    }

    pub(crate) fn meta(mut self, meta: &str) -> Ask {
        self.extra(|extra| extra.meta = Some(meta.into()));
        self
    }

    pub(crate) fn value(mut self, value: &str) -> Ask {
        self.extra(|extra| extra.value = Some(value.as_bytes().into()));
        self
    }

    pub(crate) fn alias(mut self, alias: &str) -> Ask {
        self.extra(|extra| extra.alias = Some(alias.into()));
        self
    }

    pub(crate) fn extra(&mut self, change: impl FnOnce(&mut Extra)) {
        let mut extra = Extra::from(self.0.extra.clone());
        change(&mut extra);
        self.0.extra = extra.into();
    }
}

/// `tab(A,@,#1,true)`: a name and fields, where `@` is the wildcard, `#` begins a number, and `true`
/// and `false` are booleans.
pub(crate) fn resource(text: &str) -> Resource {
    let (name, fields) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((name, fields)) => (name, fields.split(',').map(field).collect()),
        None => (text, Vec::new()),
    };
    Resource::new(name, &fields).expect("a resource")
}

fn field(text: &str) -> Field<'_> {
    match text {
        "@" => ANY,
        "true" => Field::Bool(true),
        "false" => Field::Bool(false),
        _ => text.strip_prefix('#').map_or(Field::Text(text), Field::Number),
    }
}
