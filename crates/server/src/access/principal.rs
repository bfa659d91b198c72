//! A principal and what it may do.

use keylatch_table::{Mode, Text};

/// One thing that a principal may do with the names of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Right {
    /// Lock as S, or as O.
    Shared = 1,
    /// Lock as E or X, promote, use the Redis subset, work with tasks.
    Exclusive = 2,
    /// See who holds and who waits.
    Observe = 4,
    /// End somebody's grant.
    Revoke = 8,
    /// All of that, and the ids of others.
    Admin = 16,
}

impl Right {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Right; 5] =
        [Right::Shared, Right::Exclusive, Right::Observe, Right::Revoke, Right::Admin];

    /// Its word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Right::Shared => "shared",
            Right::Exclusive => "exclusive",
            Right::Observe => "observe",
            Right::Revoke => "revoke",
            Right::Admin => "admin",
        }
    }

    /// The right that a word names.
    pub fn from_word(word: &str) -> Option<Right> {
        Right::ALL.into_iter().find(|right| right.word() == word)
    }

    /// What locking in a mode needs. An O is as harmless as an S until it is promoted, which is
    /// judged then.
    pub fn to_lock(mode: Mode) -> Right {
        match mode {
            Mode::Shared | Mode::Optimistic => Right::Shared,
            Mode::Cumulative | Mode::Exclusive => Right::Exclusive,
        }
    }
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// Rights on all names with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Names that begin so; empty is every name. The fields of a resource do not count.
    prefix: Text,
    /// A bit for each [`Right`].
    rights: u8,
}

impl Rule {
    /// These rights on names that begin with `prefix`.
    pub fn new(prefix: &str, rights: &[Right]) -> Rule {
        let rights = rights.iter().fold(0, |set, right| set | *right as u8);
        Rule { prefix: prefix.into(), rights }
    }

    /// The beginning of the names.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The rights as they were given: `admin` alone, if that is what was said.
    pub fn rights(&self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(|right| self.rights & *right as u8 != 0)
    }

    fn gives(&self, right: Right) -> bool {
        self.rights & (right as u8 | Right::Admin as u8) != 0
    }
}

/// Who asks, once that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// What its requests carry from now on.
    pub name: Text,
    rules: Vec<Rule>,
}

impl Principal {
    /// A principal with these rules, which add up.
    pub fn new(name: &str, rules: Vec<Rule>) -> Principal {
        Principal { name: name.into(), rules }
    }

    /// One that may do everything, such as that of a listener without credentials.
    pub fn administrator(name: &str) -> Principal {
        Principal::new(name, vec![Rule::new("", &[Right::Admin])])
    }

    /// Whether it has this right on this name. On the empty name, which no resource has, only rules
    /// for every name count.
    pub fn may(&self, right: Right, name: &str) -> bool {
        self.rules.iter().any(|rule| rule.gives(right) && name.starts_with(&*rule.prefix))
    }

    /// Whether there are names on which it has this right: if not, nothing need be looked up.
    pub fn may_anywhere(&self, right: Right) -> bool {
        self.rules.iter().any(|rule| rule.gives(right))
    }

    /// Whether it may know that somebody locks this name. Who may lock it finds out anyway.
    pub fn may_see(&self, name: &str) -> bool {
        Right::ALL.into_iter().any(|right| self.may(right, name))
    }

    /// Whether it may do everything.
    pub fn is_admin(&self) -> bool {
        self.may(Right::Admin, "")
    }

    /// Its rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_add_up_and_admin_is_everything_below_its_prefix() {
        let rules = vec![
            Rule::new("a:", &[Right::Shared]),
            Rule::new("a:b:", &[Right::Exclusive, Right::Observe]),
            Rule::new("c:", &[Right::Admin]),
        ];
        let who = Principal::new("p", rules);
        let rights = |name: &str| {
            let has = Right::ALL.into_iter().filter(|right| who.may(*right, name));
            has.map(Right::word).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(rights("a:x"), "shared");
        assert_eq!(rights("a:b:x"), "shared exclusive observe");
        assert_eq!(rights("a:"), "shared", "a name that is the prefix");
        assert_eq!(rights("a"), "");
        assert_eq!(rights("c:x"), "shared exclusive observe revoke admin");
        assert_eq!(rights(""), "", "no rule is for every name");
        assert!(!who.is_admin());
        assert!(who.may_anywhere(Right::Revoke), "on c:");
        assert!(who.may_see("a:x") && !who.may_see("b:x"));
        assert!(
            !Principal::new("p", vec![Rule::new("a", &[Right::Shared])]).may_anywhere(Right::Admin)
        );
        let admin = Principal::administrator("root");
        assert!(admin.is_admin() && admin.may(Right::Revoke, "anything"));
        assert!(!Principal::new("nobody", vec![]).may_see("a"));
    }

    #[test]
    fn every_right_has_a_word_of_its_own() {
        for right in Right::ALL {
            assert_eq!(Right::from_word(right.word()), Some(right));
            assert_eq!(Rule::new("", &[right]).rights().collect::<Vec<_>>(), [right]);
        }
        assert_eq!(Right::from_word("Shared"), None);
    }
}
