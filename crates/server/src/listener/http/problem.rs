//! Refusals as RFC 9457 has them: a status, a code that programs read, a sentence that people read.

use serde_json::{Map, Value};

/// Why there is no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    /// Fixed; docs/http.md lists them.
    pub(crate) code: &'static str,
    /// What to do.
    pub(crate) detail: String,
    /// What else there is to know: the blocker, a cycle, a cause.
    pub(crate) more: Map<String, Value>,
    /// The methods that a path has, if it was asked with another one.
    pub(super) allow: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: u16, code: &'static str, detail: String) -> Problem {
        Problem { status, code, detail, more: Map::new(), allow: None }
    }

    pub(super) fn too_large(most: usize) -> Problem {
        Problem::new(413, "too_large", format!("the body may have at most {most} bytes"))
    }

    pub(super) fn with(mut self, name: &str, value: Value) -> Problem {
        self.more.insert(name.into(), value);
        self
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let mut all = Map::new();
        all.insert("type".into(), format!("urn:keylatch:{}", self.code).into());
        all.insert("title".into(), super::reason(self.status).into());
        all.insert("status".into(), self.status.into());
        all.insert("code".into(), self.code.into());
        all.insert("detail".into(), self.detail.clone().into());
        all.extend(self.more.clone());
        Value::Object(all).to_string().into_bytes()
    }
}
