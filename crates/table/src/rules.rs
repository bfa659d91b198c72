//! The rules themselves, as plain functions of values: which modes live together, what overlaps.
//! Everything else in the crate is bookkeeping that decides *when* to ask these questions.

use crate::{Field, Mode, Part, Resource};

/// The newest version of the rules that this build knows.
pub const RULES: u32 = 1;

/// Whether `asked` may join `held`. It does not matter which of the two came first.
pub fn together(held: Mode, asked: Mode, same_owner: bool) -> bool {
    match (held, asked) {
        (Mode::Shared, Mode::Shared) | (Mode::Optimistic, Mode::Optimistic) => true,
        (Mode::Cumulative, Mode::Cumulative) => same_owner,
        _ => false,
    }
}

/// Whether two resources have anything in common: the same name, as many fields, and each pair of
/// fields equal or either of them the wildcard.
pub fn overlap(a: &Resource, b: &Resource) -> bool {
    a.prefix(0) == b.prefix(0)
        && a.fields().zip(b.fields()).all(|(x, y)| x == y || x == Field::Any || y == Field::Any)
}

/// Whether two resources, locked so, get in each other's way.
pub fn conflict(a: &Part, b: &Part, same_owner: bool) -> bool {
    !together(a.mode, b.mode, same_owner) && overlap(&a.resource, &b.resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ANY, Mode::*};

    #[test]
    fn modes_live_together_exactly_as_the_table_says() {
        for held in Mode::ALL {
            for asked in Mode::ALL {
                let always = matches!((held, asked), (Shared, Shared) | (Optimistic, Optimistic));
                let cumulates = (held, asked) == (Cumulative, Cumulative);
                assert_eq!(together(held, asked, false), always, "{held:?} {asked:?}");
                assert_eq!(together(held, asked, true), always || cumulates, "{held:?} {asked:?}");
            }
        }
    }

    #[test]
    fn overlap_needs_name_arity_and_every_field() {
        let of = |name, fields: &[Field<'_>]| Resource::new(name, fields).unwrap();
        let ab = of("n", &["a".into(), "b".into()]);
        for (other, expected) in [
            (of("n", &["a".into(), "b".into()]), true),
            (of("n", &["a".into(), ANY]), true),
            (of("n", &[ANY, "b".into()]), true),
            (of("n", &[ANY, ANY]), true),
            (of("n", &[ANY, "c".into()]), false),
            (of("n", &["a".into(), "c".into()]), false),
            (of("n", &["a".into()]), false),
            (of("n", &[ANY, ANY, ANY]), false),
            (of("m", &["a".into(), "b".into()]), false),
        ] {
            assert_eq!(overlap(&ab, &other), expected, "{other}");
            assert_eq!(overlap(&other, &ab), expected, "{other}");
            let part = |resource: &Resource, mode| Part::new(resource.clone(), mode);
            assert_eq!(conflict(&part(&ab, Shared), &part(&other, Exclusive), true), expected);
            assert!(!conflict(&part(&ab, Shared), &part(&other, Shared), false));
        }
        assert!(overlap(&of("n", &["a".into(), ANY]), &of("n", &[ANY, "b".into()])));
    }
}
