//! Every error says what is wrong and what to do.

use keylatch_table::{CodecError, Error, ResourceError, What};

const EVERY_WHAT: [(What, &str); 24] = [
    (What::Id, "request id"),
    (What::Name, "name"),
    (What::Field, "field"),
    (What::Owner, "owner"),
    (What::Principal, "principal"),
    (What::Meta, "meta"),
    (What::Value, "value"),
    (What::Alias, "alias"),
    (What::Reason, "reason"),
    (What::Resources, "resources of one request"),
    (What::Wait, "wait"),
    (What::Lease, "lease"),
    (What::MaxHold, "max hold"),
    (What::Waiters, "waiters on one resource"),
    (What::RequestsOfName, "requests on one name"),
    (What::RequestsOfOwner, "requests of one owner"),
    (What::Requests, "requests"),
    (What::Pool, "pool"),
    (What::TaskKey, "task key"),
    (What::TaskBody, "task body"),
    (What::TaskError, "task error"),
    (What::TaskBytes, "bytes of tasks"),
    (What::TaskDelay, "task delay"),
    (What::Claims, "claims waiting on one pool"),
];

#[test]
fn every_subject_of_a_bound_has_a_name() {
    for (what, name) in EVERY_WHAT {
        assert_eq!(what.to_string(), name);
        assert!(Error::Empty(what).to_string().contains(name));
        assert!(Error::TooLong(what, 7).to_string().contains(name));
        assert!(Error::TooMany(what, 7).to_string().contains(name));
    }
}

#[test]
fn every_error_says_what_to_do() {
    for (error, text) in [
        (Error::TooLong(What::Name, 512), "the name is longer than 512 bytes; use a shorter one"),
        (Error::TooLong(What::Wait, 9), "the wait is longer than 9 ms; use a shorter one"),
        (Error::TooLong(What::Lease, 9), "the lease is longer than 9 ms; use a shorter one"),
        (Error::TooLong(What::MaxHold, 9), "the max hold is longer than 9 ms; use a shorter one"),
        (
            Error::TooLong(What::TaskDelay, 9),
            "the task delay is longer than 9 ms; use a shorter one",
        ),
        (
            Error::TooMany(What::Waiters, 10),
            "at most 10 waiters on one resource are allowed; release some or raise the bound",
        ),
        (Error::Empty(What::Id), "the request id is empty; give one"),
        (
            Error::IdReused,
            "this request id was used for something else; use a new id for each request",
        ),
        (Error::AliasInUse, "a live lock has this alias; release it first or use another alias"),
        (Error::PartsOverlap, "two resources of the request overlap; ask for each of them once"),
        (
            Error::MixedOptimistic,
            "optimistic and other modes cannot be mixed in one request; ask for all or none as O",
        ),
        (
            Error::DetectNeedsOwner,
            "deadlock detection needs an owner; name one or leave detection off",
        ),
        (Error::NeverPromotable, "only a lock taken as O or S can be promoted; this one was not"),
        (Error::EachCannotWait, "separate locks taken together cannot wait; use wait 0"),
        (Error::KeyWithFields, "a key is a plain name; leave the fields off"),
        (
            Error::RulesVersion(7),
            "rules version 7 is not between the present one and the newest this build knows; \
             raise it in steps, after upgrading every member",
        ),
        (Error::BadSetting("id_bytes is at most 255"), "id_bytes is at most 255"),
    ] {
        assert_eq!(error.to_string(), text);
        // All of them are errors in the eyes of the standard library.
        let error: Box<dyn std::error::Error> = Box::new(error);
        assert!(error.source().is_none());
    }
}

#[test]
fn the_text_of_too_many_makes_sense_for_what_one_request_asks_for() {
    // "There are already 64 resources of one request; release some" would send the reader astray.
    let text = Error::TooMany(What::Resources, 64).to_string();
    assert!(text.contains("64 resources of one request"), "{text}");
    assert!(!text.contains("already"), "{text}");
    assert!(!text.contains("release some"), "{text}");
}

#[test]
fn errors_of_bytes_and_resources_have_texts_too() {
    for (error, text) in [
        (CodecError::Short, "the bytes end too early"),
        (CodecError::Long, "there are bytes behind the end"),
        (CodecError::Bad("mode"), "bad mode"),
        (CodecError::Checksum, "the checksum does not match: the bytes are damaged"),
        (CodecError::Version(9), "format version 9 is newer than this build; upgrade to read it"),
    ] {
        assert_eq!(error.to_string(), text);
    }
    for (error, text) in [
        (ResourceError::EmptyName, "a resource needs a name"),
        (ResourceError::TooLong, "a name or field is longer than 65,535 bytes"),
        (ResourceError::TooManyFields, "a resource has at most 16 fields"),
        (ResourceError::Malformed, "these bytes are not a resource"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
