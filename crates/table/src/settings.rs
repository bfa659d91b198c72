//! The bounds that the table enforces. They are replicated: a command sets them, a snapshot has
//! them, so every member refuses the same things.

use crate::error::Error;

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident = $default:expr,)*) => {
        /// Bounds on everything the table keeps. 0 allows none, except where a field says otherwise.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings { $($(#[$doc])* pub $name: u64,)* }

        impl Default for Settings {
            fn default() -> Settings {
                Settings { $($name: $default,)* }
            }
        }

        impl Settings {
            /// Names and values in a fixed order: what files and logs store.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Sets one value by name; false if there is no such setting.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

settings! {
    /// Bytes of a request id.
    id_bytes = 64,
    /// Bytes of a name.
    name_bytes = 512,
    /// Bytes of a field.
    field_bytes = 256,
    /// Bytes of an owner, and of a principal.
    owner_bytes = 256,
    /// Bytes of a request's meta, of a value, an alias, a reason, a task's error.
    meta_bytes = 1_024,
    /// Resources of one request.
    resources = 64,
    /// The longest wait: a week.
    wait_ms = 604_800_000,
    /// The longest lease and the longest max hold: four weeks. At most `u32::MAX` - 1.
    lease_ms = 2_419_200_000,
    /// Requests waiting on one resource.
    waiters = 10_000,
    /// Requests, held and waiting, on one name; 0 is unbounded.
    requests_of_name = 0,
    /// Requests, held and waiting, of one explicit owner.
    requests_of_owner = 100_000,
    /// Requests, held and waiting, in all.
    requests = 20_000_000,
    /// How long an ended id is remembered.
    ended_ms = 60_000,
    /// How many ended ids are remembered, and how many answers to task commands.
    ended = 50_000,
    /// Bytes of a pool's name and of a task's key.
    task_key_bytes = 512,
    /// Bytes of a task's body.
    task_body_bytes = 65_536,
    /// Bytes of all tasks together.
    task_bytes = 4_294_967_296,
    /// The attempts after which a task that is put back becomes failed; 0 never.
    task_attempts = 25,
    /// Claims waiting on one pool.
    claims = 10_000,
}

impl Settings {
    /// Refuses values that the table's own representation cannot hold.
    pub fn validate(&self) -> Result<(), Error> {
        let fits = |value: u64, most: u64, why| {
            if value <= most { Ok(()) } else { Err(Error::BadSetting(why)) }
        };
        let long = u64::from(u32::MAX) - 1;
        fits(self.id_bytes, 255, "id_bytes is at most 255")?;
        fits(self.name_bytes, 65_535, "name_bytes is at most 65,535")?;
        fits(self.field_bytes, 65_535, "field_bytes is at most 65,535")?;
        fits(self.resources, 255, "resources is at most 255")?;
        fits(self.wait_ms, long, "wait_ms is at most 4,294,967,294")?;
        fits(self.lease_ms, long, "lease_ms is at most 4,294,967,294")?;
        fits(self.requests, 1 << 30, "requests is at most 1,073,741,824")?;
        fits(self.ended, 1 << 30, "ended is at most 1,073,741,824")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_by_name_and_listed_in_order() {
        let mut settings = Settings::default();
        assert!(settings.set("waiters", 7));
        assert!(!settings.set("nonsense", 7));
        assert_eq!(settings.waiters, 7);
        let entries = settings.entries().collect::<Vec<_>>();
        assert_eq!(entries[0], ("id_bytes", 64));
        assert!(entries.contains(&("waiters", 7)));
        let mut copy = Settings::default();
        assert!(entries.iter().all(|(name, value)| copy.set(name, *value)));
        assert_eq!(copy, settings);
    }

    #[test]
    fn values_that_cannot_be_represented_are_refused() {
        assert_eq!(Settings::default().validate(), Ok(()));
        let long = u64::from(u32::MAX);
        for (name, least_bad) in [
            ("id_bytes", 256),
            ("name_bytes", 65_536),
            ("field_bytes", 65_536),
            ("resources", 256),
            ("wait_ms", long),
            ("lease_ms", long),
            ("requests", (1 << 30) + 1),
            ("ended", (1 << 30) + 1),
        ] {
            let mut settings = Settings::default();
            settings.set(name, least_bad);
            assert!(
                matches!(settings.validate(), Err(Error::BadSetting(why)) if why.starts_with(name))
            );
            settings.set(name, least_bad - 1);
            assert_eq!(settings.validate(), Ok(()));
        }
    }
}
