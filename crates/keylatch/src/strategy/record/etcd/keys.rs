//! Where things stand in etcd, and what numbers mean. Below the prefix:
//!
//! | key | what | lease |
//! |---|---|---|
//! | `base` | what all numbers begin with | |
//! | `n/NAME/head/INDEX` | who holds; INDEX tells apart what was changed at once | |
//! | `n/NAME/hold` | this holder's lease lives, who was put as the only one | the holder's |
//! | `n/NAME/hold/ID` | the same of one who was put with others | the holder's |
//! | `n/NAME/keep` | a head without holders is not swept yet | its own |
//! | `n/NAME/wait/ID/INDEX` | a waiter | the waiter's |
//! | `w/told/I` | what is told to everyone, written over and over | |
//! | `w/task/I` | the same of tasks | |
//! | `t/` | tasks: see `tasks.rs` | |
//! | `w/lease/LEASE` | goes with a lease, so that its end is told | that one |
//! | `swept` | somebody has swept, a short while ago | its own |
//! | `count/I` | written by changes that write nothing else: they too take numbers | |
//!
//! All of a name is one range, in which `head/`, `hold/` and `keep` are next to each other; all that is
//! watched is another.
//!
//! etcd steps over keys that were deleted until it is compacted, in every range. So who holds alone, as most do, always
//! stands under the same key: with keys of their own a name would cost more with each lock that there was.

use keylatch_table::{RequestId, Text};

use super::super::store::Name;

/// How many numbers a revision has: that many a change can take.
pub(super) const NUMBERS: u64 = 1 << SHIFT;
const SHIFT: u32 = 12;

const HEX: &[u8; 16] = b"0123456789abcdef";

pub(super) type Range = (Vec<u8>, Vec<u8>);

#[derive(Debug)]
pub(super) struct Keys {
    /// Ends with a slash.
    prefix: String,
}

/// What a key below a name is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Head {
        index: u64,
    },
    /// Whose, if the key says it; else its value does.
    Hold(Option<RequestId>),
    Keep,
    Wait {
        index: u64,
    },
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Keys {
        let slash = if prefix.ends_with('/') { "" } else { "/" };
        Keys { prefix: format!("{prefix}{slash}") }
    }

    pub(super) fn base(&self) -> Vec<u8> {
        format!("{}base", self.prefix).into_bytes()
    }

    pub(super) fn swept(&self) -> Vec<u8> {
        format!("{}swept", self.prefix).into_bytes()
    }

    /// The number within its revision sees to it that no key is put twice by what is changed at once.
    pub(super) fn count(&self, index: u64) -> Vec<u8> {
        format!("{}count/{index}", self.prefix).into_bytes()
    }

    pub(super) fn told(&self, index: u64) -> Vec<u8> {
        format!("{}w/told/{index}", self.prefix).into_bytes()
    }

    pub(super) fn lease(&self, lease: i64) -> Vec<u8> {
        format!("{}w/lease/{lease:x}", self.prefix).into_bytes()
    }

    pub(super) fn watched(&self) -> Range {
        below(format!("{}w/", self.prefix))
    }

    pub(super) fn is_lease(&self, key: &[u8]) -> bool {
        key.starts_with(format!("{}w/lease/", self.prefix).as_bytes())
    }

    /// Everything of all names.
    pub(super) fn names(&self) -> Range {
        below(format!("{}n/", self.prefix))
    }

    fn name(&self, name: &str) -> String {
        let mut key = format!("{}n/", self.prefix);
        escape(name, &mut key);
        key.push('/');
        key
    }

    /// Everything of one name.
    pub(super) fn all(&self, name: &str) -> Range {
        below(self.name(name))
    }

    pub(super) fn head(&self, name: &str, index: u64) -> Vec<u8> {
        (self.name(name) + &format!("head/{index:03x}")).into_bytes()
    }

    /// The head, whatever its index.
    pub(super) fn heads(&self, name: &str) -> Range {
        below(self.name(name) + "head/")
    }

    /// Of the only holder, whoever it is.
    pub(super) fn hold_alone(&self, name: &str) -> Vec<u8> {
        (self.name(name) + "hold").into_bytes()
    }

    /// Of one among several.
    pub(super) fn hold(&self, name: &str, id: &RequestId) -> Vec<u8> {
        let mut key = self.name(name) + "hold/";
        escape(&id.to_string(), &mut key);
        key.into_bytes()
    }

    pub(super) fn keep(&self, name: &str) -> Vec<u8> {
        (self.name(name) + "keep").into_bytes()
    }

    /// The head and all that goes with it.
    pub(super) fn head_to_keep(&self, name: &str) -> Range {
        (self.heads(name).0, next(self.keep(name)))
    }

    /// All of a name but its head.
    pub(super) fn beside_head(&self, name: &str) -> Range {
        (self.heads(name).1, self.all(name).1)
    }

    pub(super) fn waits(&self, name: &str) -> Range {
        below(self.name(name) + "wait/")
    }

    /// Whatever is queued under this id.
    pub(super) fn waits_of(&self, name: &str, id: &RequestId) -> Range {
        below(self.wait_key(name, id))
    }

    pub(super) fn wait(&self, name: &str, id: &RequestId, index: u64) -> Vec<u8> {
        (self.wait_key(name, id) + &format!("{index:03x}")).into_bytes()
    }

    fn wait_key(&self, name: &str, id: &RequestId) -> String {
        let mut key = self.name(name) + "wait/";
        escape(&id.to_string(), &mut key);
        key.push('/');
        key
    }

    /// A part of all tasks, of one pool or of all.
    fn tasks_at(&self, part: &str, pool: Option<&str>) -> String {
        let mut key = format!("{}t/{part}/", self.prefix);
        if let Some(pool) = pool {
            escape(pool, &mut key);
            key.push('/');
        }
        key
    }

    pub(super) fn tasks(&self, pool: Option<&str>) -> Range {
        below(self.tasks_at("r", pool))
    }

    pub(super) fn task(&self, pool: &str, key: &str) -> Vec<u8> {
        let mut at = self.tasks_at("r", Some(pool));
        escape(key, &mut at);
        at.into_bytes()
    }

    /// The pool and the key of a task.
    pub(super) fn task_of(&self, key: &[u8]) -> Option<(Text, Text)> {
        let key = std::str::from_utf8(key).ok()?;
        let (pool, key) = key.strip_prefix(&self.tasks_at("r", None))?.split_once('/')?;
        Some((unescape(pool)?.into(), unescape(key)?.into()))
    }

    pub(super) fn tasks_line(&self, pool: &str) -> Range {
        below(self.tasks_at("q", Some(pool)))
    }

    /// Its place: the highest priority first, then the earliest.
    pub(super) fn task_line(&self, pool: &str, priority: i32, ready: u64, key: &str) -> Vec<u8> {
        let rank = i64::from(i32::MAX) - i64::from(priority);
        let mut at = self.tasks_at("q", Some(pool)) + &format!("{rank:010} {ready:016}/");
        escape(key, &mut at);
        at.into_bytes()
    }

    /// What comes before the key of a task that stands in the line.
    pub(super) fn rank_of(key: &[u8]) -> Vec<u8> {
        let end = key.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        key[..end].to_vec()
    }

    /// The task that stands there.
    pub(super) fn task_in_line(&self, pool: &str, key: &[u8]) -> Option<Vec<u8>> {
        let end = key.iter().rposition(|byte| *byte == b'/')?;
        let mut at = self.tasks_at("r", Some(pool)).into_bytes();
        at.extend(&key[end + 1..]);
        Some(at)
    }

    pub(super) fn tasks_later(&self, pool: &str) -> Range {
        below(self.tasks_at("l", Some(pool)))
    }

    /// Where it says that a task is not due yet: because somebody has claimed it, or because it is delayed.
    fn held(claimed: bool) -> &'static str {
        if claimed { "h" } else { "d" }
    }

    pub(super) fn tasks_held(&self, pool: &str, claimed: bool) -> Range {
        below(self.tasks_at(Keys::held(claimed), Some(pool)))
    }

    /// Tasks that are neither done nor stand anywhere else: those that failed, or those that were claimed
    /// for as long as it takes.
    pub(super) fn tasks_apart(&self, pool: &str, failed: bool) -> Range {
        below(self.tasks_at(Keys::apart(failed), Some(pool)))
    }

    pub(super) fn task_apart(&self, pool: &str, key: &str, failed: bool) -> Vec<u8> {
        let mut at = self.tasks_at(Keys::apart(failed), Some(pool));
        escape(key, &mut at);
        at.into_bytes()
    }

    fn apart(failed: bool) -> &'static str {
        if failed { "f" } else { "o" }
    }

    pub(super) fn task_later(&self, pool: &str, ready: u64, key: &str) -> Vec<u8> {
        let mut at = self.tasks_at("l", Some(pool)) + &format!("{ready:016}/");
        escape(key, &mut at);
        at.into_bytes()
    }

    pub(super) fn task_held(&self, pool: &str, ready: u64, key: &str, claimed: bool) -> Vec<u8> {
        let part = Keys::held(claimed);
        let mut at = self.tasks_at(part, Some(pool)) + &format!("{ready:016}/");
        escape(key, &mut at);
        at.into_bytes()
    }

    pub(super) fn task_noted(&self, pool: &str) -> Vec<u8> {
        let mut at = self.tasks_at("w", None);
        escape(pool, &mut at);
        at.into_bytes()
    }

    pub(super) fn task_claim(&self, id: &str) -> Vec<u8> {
        let mut at = self.tasks_at("c", None);
        escape(id, &mut at);
        at.into_bytes()
    }

    pub(super) fn task_told(&self, index: u64) -> Vec<u8> {
        format!("{}w/task/{index}", self.prefix).into_bytes()
    }

    pub(super) fn is_task_told(&self, key: &[u8]) -> bool {
        key.starts_with(format!("{}w/task/", self.prefix).as_bytes())
    }

    /// The name and the part that a key stands for; nothing, if it is none of ours.
    pub(super) fn parse(&self, key: &[u8]) -> Option<(Name, Part)> {
        let key = std::str::from_utf8(key).ok()?;
        let key = key.strip_prefix(&*self.prefix)?.strip_prefix("n/")?;
        let (name, part) = key.split_once('/')?;
        let name = unescape(name)?.into();
        let index = |text: &str| u64::from_str_radix(text, 16).ok();
        let id = |text: &str| unescape(text).map(|text| RequestId::new(&text));
        let part = match part.split_once('/') {
            None if part == "keep" => Part::Keep,
            None if part == "hold" => Part::Hold(None),
            Some(("head", text)) => Part::Head { index: index(text)? },
            Some(("hold", text)) => Part::Hold(Some(id(text)?)),
            Some(("wait", rest)) => {
                let (_, text) = rest.split_once('/')?;
                Part::Wait { index: index(text)? }
            }
            _ => return None,
        };
        Some((name, part))
    }
}

/// What follows directly after a key.
pub(super) fn next(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// All keys that begin with this, which ends with a slash.
fn below(start: String) -> Range {
    let start = start.into_bytes();
    let mut end = start.clone();
    // A slash becomes what follows after it.
    end.pop();
    end.push(b'/' + 1);
    (start, end)
}

/// Text without slashes and without what cannot be seen.
fn escape(text: &str, key: &mut String) {
    for character in text.chars() {
        if matches!(character, '/' | '%') || character.is_ascii_control() {
            let byte = u32::from(character) as u8;
            key.push('%');
            key.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
        } else {
            key.push(character);
        }
    }
}

/// Also what is written in a URL.
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                after
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(*first);
                after
            }
        };
    }
    String::from_utf8(bytes).ok()
}

/// What all numbers of this etcd begin with: the time at which this prefix was first used. So tokens do not
/// fall back if all of it was lost since, and it is seen that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base(u64);

impl Base {
    pub(super) fn new(micros: u64) -> Base {
        Base(micros)
    }

    pub(super) fn parse(value: &[u8]) -> Option<Base> {
        std::str::from_utf8(value).ok()?.parse().ok().map(Base)
    }

    pub(super) fn value(self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }

    /// The first number of a revision.
    pub(super) fn number(self, revision: i64) -> u64 {
        self.0 + (revision.cast_unsigned() << SHIFT)
    }

    /// The revision of a number, and which of its numbers it is.
    pub(super) fn revision(self, number: u64) -> Option<(i64, u64)> {
        let beyond = number.checked_sub(self.0)?;
        Some(((beyond >> SHIFT).cast_signed(), beyond % NUMBERS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_and_id_is_found_again_and_no_other() {
        let keys = Keys::new("p");
        let odd = ["", "/", "%", "%2f", "a/b", "a", "a\0\n", "漢字", "head", "wait/x"];
        for name in odd {
            assert_eq!(
                keys.parse(&keys.head(name, 9)),
                Some((name.into(), Part::Head { index: 9 }))
            );
            assert_eq!(keys.parse(&keys.keep(name)), Some((name.into(), Part::Keep)));
            assert_eq!(keys.parse(&keys.hold_alone(name)), Some((name.into(), Part::Hold(None))));
            for text in odd {
                let id = RequestId::new(text);
                let hold = keys.hold(name, &id);
                assert_eq!(keys.parse(&hold), Some((name.into(), Part::Hold(Some(id.clone())))));
                let wait = keys.wait(name, &id, 0xfff);
                assert_eq!(keys.parse(&wait), Some((name.into(), Part::Wait { index: 0xfff })));
                for other in odd {
                    let within = |(from, to): Range, key: &Vec<u8>| from <= *key && *key < to;
                    assert_eq!(within(keys.all(other), &wait), other == name);
                    assert_eq!(within(keys.head_to_keep(other), &hold), other == name);
                    assert_eq!(
                        within(keys.waits_of(name, &RequestId::new(other)), &wait),
                        other == text
                    );
                }
            }
        }
        assert_eq!(keys.parse(b"p/base"), None);
    }

    #[test]
    fn what_belongs_to_a_head_is_one_range() {
        let keys = Keys::new("p/");
        let (from, to) = keys.head_to_keep("k");
        let id = RequestId::new("\u{10ffff}");
        for inside in [
            keys.head("k", 0),
            keys.head("k", 4_095),
            keys.hold_alone("k"),
            keys.hold("k", &id),
            keys.keep("k"),
        ] {
            assert!(from <= inside && inside < to);
        }
        assert!(keys.wait("k", &id, 0) >= to);
    }

    #[test]
    fn numbers_say_their_revision() {
        let base = Base::new(1_000_000);
        assert_eq!(base.revision(base.number(7) + 3), Some((7, 3)));
        assert_eq!(base.revision(999_999), None);
        assert_eq!(Base::parse(&base.value()), Some(base));
    }
}
