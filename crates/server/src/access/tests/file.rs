//! Reading the access file, and finding a principal by what it shows.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::access::secret::work;
use crate::access::{Access, AccessError, NewToken, Right};

fn parse(text: &str) -> Result<Access, String> {
    Access::parse(Path::new("access.toml"), text).map_err(|error| error.to_string())
}

fn with_token(token: &NewToken) -> String {
    format!(
        "# who may do what\n[[principal]]\nname = \"billing\"\ncertificate = \"billing.example\"\n\
         [[principal.token]]\nid = \"{}\"\nhash = \"{}\"\ncreated = \"2026-11-16T10:00:00Z\"\n\
         [[principal.rule]]\nprefix = \"billing:\"\nrights = [\"shared\", \"observe\"]\n\
         [[principal]]\nname = \"nobody\"\n",
        token.id(),
        token.hash()
    )
}

#[test]
fn a_principal_is_found_by_token_certificate_and_name() {
    let token = NewToken::generate().unwrap();
    let access = parse(&with_token(&token)).unwrap();
    let billing = access.by_token(&token.reveal()).unwrap();
    assert_eq!(&*billing.name, "billing");
    assert!(billing.may(Right::Shared, "billing:1") && !billing.may(Right::Exclusive, "billing:1"));
    for found in [access.by_certificate("billing.example"), access.by_name("billing")] {
        assert!(Arc::ptr_eq(&found.unwrap(), &billing));
    }
    assert!(
        access.by_certificate("billing").is_none() && access.by_name("billing.example").is_none()
    );
    assert!(!access.by_name("nobody").unwrap().may_see("billing:1"));
    let names: Vec<&str> = access.principals().map(|principal| &*principal.name).collect();
    assert_eq!(names, ["billing", "nobody"]);
    let (id, kept) = access.tokens().next().unwrap();
    assert_eq!((id, kept.created()), (token.id(), Some("2026-11-16T10:00:00Z")));
    let shown = format!("{access:?} {kept:?}");
    assert!(!shown.contains(&token.hash()[7..]), "{shown}");
}

#[test]
fn a_wrong_token_takes_the_work_of_a_right_one() {
    let token = NewToken::generate().unwrap();
    let access = parse(&with_token(&token)).unwrap();
    let right = token.reveal();
    let judge = |text: &str| {
        work::take();
        (access.by_token(text).is_some(), work::take())
    };
    let (known, usual) = judge(&right);
    assert!(known && usual.hashes == 1 && usual.comparisons == 1);
    let last = if right.ends_with('0') { "1" } else { "0" };
    let wrong_secret = format!("{}{last}", &right[..right.len() - 1]);
    let unknown_id = right.replacen(token.id(), "0123456789abcdef", 1);
    for wrong in [wrong_secret, unknown_id, NewToken::generate().unwrap().reveal()] {
        assert_eq!(judge(&wrong), (false, usual), "{wrong}");
    }
    // What is no token has no secret part; all of it is hashed.
    for wrong in ["", "klt_", "password", &right.replace("klt_", "kll_"), &right[4..]] {
        let (known, work) = judge(wrong);
        assert!(!known && work.hashes == 1 && work.comparisons == 1, "{wrong}");
    }
    // An unknown id is compared with a hash too, and whoever found its preimage would be nobody.
    let (known, work) = judge(&"x".repeat(257));
    assert!(!known && work.hashes == 0, "nobody makes us hash a megabyte");
}

#[test]
fn a_mistake_is_named_with_its_line_and_what_to_do() {
    let hash = format!("sha256:{}", "0".repeat(64));
    let token = |id: &str| format!("[[principal.token]]\nid = \"{id}\"\nhash = \"{hash}\"\n");
    let principal = |name: &str| format!("[[principal]]\nname = \"{name}\"\n");
    let cases = [
        ("[[principal]\n".into(), 1, ""),
        ("[[principals]]\nname = \"a\"\n".into(), 1, "unknown field `principals`"),
        (format!("{}right = \"x\"\n", principal("a")), 3, "unknown field `right`"),
        ("[[principal]]\ncertificate = \"x\"\n".into(), 1, "missing field `name`"),
        (principal(""), 2, "1 to 256 bytes"),
        (principal("a\\nb"), 2, "no control characters"),
        (format!("{}\n{}", principal("a"), principal("a")), 5, "rename this one"),
        (
            format!("{}certificate = \"x\"\n{0}certificate = \"x\"\n", principal("a"))
                .replacen("\"a\"", "\"b\"", 1),
            6,
            "the certificate `x` belongs to two principals",
        ),
        (format!("{}certificate = \"\"\n", principal("a")), 3, "leave the line out"),
        (
            format!("{}{}{}{1}", principal("a"), token("t"), principal("b")),
            9,
            "there are two tokens `t`: remove one",
        ),
        (format!("{}{}", principal("a"), token("a_b")), 4, "letters, digits or hyphens"),
        (
            format!("{}[[principal.token]]\nid = \"t\"\nhash = \"secret\"\n", principal("a")),
            5,
            "64 hex digits",
        ),
        (
            format!(
                "{}[[principal.rule]]\nprefix = \"\"\nrights = [\"shared\",\n\"write\"]\n",
                principal("a")
            ),
            6,
            "there is no right `write`; there are shared, exclusive, observe, revoke, admin",
        ),
        (
            format!("{}[[principal.rule]]\nprefix = \"\"\nrights = []\n", principal("a")),
            5,
            "allows nothing",
        ),
        (
            format!("{}[[principal.rule]]\nrights = [\"shared\"]\n", principal("a")),
            3,
            "missing field `prefix`",
        ),
    ];
    for (text, line, reason) in cases {
        let error = parse(&text).unwrap_err();
        assert!(error.starts_with(&format!("access.toml, line {line}: ")), "{text}\n{error}");
        assert!(error.contains(reason), "{text}\n{error}");
    }
    assert_eq!(parse("").unwrap().principals().count(), 0, "nobody may do anything");
}

#[test]
fn a_token_in_the_wrong_place_is_not_repeated_by_the_error() {
    let token = NewToken::generate().unwrap().reveal();
    for text in [
        format!("[[principal]]\nname = \"a\"\ntoken = \"{token}\"\n"),
        format!(
            "[[principal]]\nname = \"a\"\n[[principal.token]]\nid = \"{token}\"\nhash = \"\"\n"
        ),
        format!(
            "[[principal]]\nname = \"a\"\n[[principal.token]]\nid = \"a\"\nhash = \"{token}\"\n"
        ),
        format!("[[principal]]\nname = \"a\"\n[[principal.token]]\n{token}\n"),
        format!("principal = \"{token}\"\n"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(!error.contains(&token[5..]), "{error}");
    }
}

#[test]
fn a_file_that_is_missing_or_open_to_all_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.toml");
    let error = Access::read(&path).unwrap_err();
    assert!(matches!(error, AccessError::NotFound(_)));
    assert!(error.to_string().contains("keylatch token create NAME"), "{error}");
    std::fs::write(&path, "").unwrap();
    let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o606);
    let error = Access::read(&path).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    mode(0o600);
    assert!(Access::read(&path).is_ok());
    std::fs::write(&path, [0xff]).unwrap();
    assert!(matches!(Access::read(&path), Err(AccessError::Io { .. })));
    std::fs::write(&path, " ".repeat((16 << 20) + 1)).unwrap();
    assert!(Access::read(&path).unwrap_err().to_string().contains("16 MiB"));
    assert!(matches!(Access::read(dir.path()), Err(AccessError::Io { .. })), "a directory");
}
