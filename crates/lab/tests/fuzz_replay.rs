//! The fuzz targets on stable Rust: every input of the corpus in `fuzz/`, then inputs made from
//! seeds. `scripts/fuzz` looks for new ones; what it finds joins the corpus.

#![allow(missing_docs)]

use std::{
    fmt::Write as _,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use keylatch_lab::{
    fuzz,
    generate::{Generator, Profile},
    model::{Bug, Model},
    random::Random,
};
use keylatch_table::{Answer, Command, Query, Settings, Table};

/// Made inputs a target: a few seconds in a dev build.
const MADE: u64 = 2_000;
/// The same for parsers, which are quick.
const MADE_FOR_PARSERS: u64 = 50_000;

type Target = (&'static str, fn(&[u8]));

const COMMANDS: Target = ("commands", fuzz::commands);
const SCRIPT: Target = ("script", fuzz::script);
const SNAPSHOT: Target = ("snapshot", fuzz::snapshot);
const RESP: Target = ("resp", fuzz::resp);
const REPLY: Target = ("reply", fuzz::reply);
const ENQUEUE: Target = ("enqueue", keylatch_server::fuzzing::enqueue);
const HTTP: Target = ("http", keylatch_server::fuzzing::http);

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// The committed inputs of a target, by name; there must be some.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = folder(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs = entries
        .map(|entry| {
            let entry = entry.expect("a readable folder");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("a readable file"))
        })
        .collect::<Vec<_>>();
    inputs.sort();
    assert!(!inputs.is_empty(), "the corpus of {target} is empty");
    inputs
}

/// Runs a target; a failure shows the whole input.
fn passes((name, body): Target, origin: &str, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| body(input))).is_err() {
        let hex = input.iter().fold(String::new(), |mut text, byte| {
            _ = write!(text, "{byte:02x}");
            text
        });
        panic!("{name} fails on {origin}: {hex}");
    }
}

// ---- inputs from seeds ---------------------------------------------------------------------

/// Commands of a random run and their times.
fn run(seed: u64, profile: Profile, steps: usize) -> Vec<(u64, Command)> {
    let mut model = Model::new(profile.settings(), 0);
    let mut generator = Generator::new(seed, profile);
    let next = |_| {
        let (at, command) = generator.next(&model);
        model.apply(at, &command);
        (at, command)
    };
    (0..steps).map(next).collect()
}

fn log(seed: u64, steps: usize) -> Vec<u8> {
    let number = seed as usize % Profile::ALL.len();
    let commands = run(seed, Profile::ALL[number], steps);
    fuzz::log((Profile::ALL.len() + number) as u8, &commands)
}

fn bytes(seed: u64, most: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..random.below(most)).map(|_| random.bits() as u8).collect()
}

/// A snapshot from the middle of a random run.
fn image(seed: u64, steps: usize) -> Vec<u8> {
    let profile = Profile::ALL[seed as usize % Profile::ALL.len()];
    let mut table = Table::new(profile.settings(), 0, seed);
    for (at, command) in run(seed, profile, steps) {
        table.apply(at, command);
    }
    if seed.is_multiple_of(3) {
        return table.snapshot();
    }
    // The usual settings, so that what follows them can be an input by itself.
    table.apply(0, Command::Settings(Box::default()));
    table.snapshot()
}

/// The same as an input: whole, or only what follows the settings.
fn image_input(seed: u64, steps: usize) -> Vec<u8> {
    let image = image(seed, steps);
    let body = image.strip_prefix(&*fuzz::head()).map(|body| body[..body.len() - 8].to_vec());
    body.unwrap_or(image)
}

/// Requests of words that mean something somewhere, behind a byte that cuts them into pieces.
fn requests(seed: u64) -> Vec<u8> {
    const WORDS: [&str; 48] = [
        "LOCK",
        "TASK",
        "TASK",
        "CREATE",
        "CLAIM",
        "UPDATE",
        "DONE",
        "BACK",
        "DELETE",
        "LIST",
        "COUNTS",
        "BODY",
        "JSON",
        "PRIORITY",
        "DELAY",
        "ATTEMPTS",
        "VERSION",
        "KEY",
        "STATE",
        "UNLOCK",
        "RENEW",
        "REVOKE",
        "LOCKS",
        "SET",
        "DEL",
        "PEXPIRE",
        "HELLO",
        "CLIENT",
        "ARG",
        "MODE",
        "AND",
        "OWNER",
        "LEASE",
        "WAIT",
        "ID",
        "META",
        "DETECT",
        "ASYNC",
        "NX",
        "PX",
        "REASON",
        "k",
        "@",
        "\\@x",
        "2",
        "18446744073709551616",
        "",
        "é",
    ];
    let mut random = Random::new(seed);
    let mut input = vec![random.bits() as u8];
    for _ in 0..random.between(1, 4) {
        let words: Vec<&str> = (0..random.between(1, 12)).map(|_| *random.pick(&WORDS)).collect();
        if random.percent(20) {
            input.extend(format!("{}\r\n", words.join(" ")).bytes());
            continue;
        }
        input.extend(format!("*{}\r\n", words.len()).bytes());
        input.extend(
            words.iter().flat_map(|word| format!("${}\r\n{word}\r\n", word.len()).into_bytes()),
        );
    }
    input
}

/// JSON that is made of what requests are made of.
fn json(seed: u64) -> Vec<u8> {
    const PARTS: [&str; 32] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\"OP\"",
        "\"1\"",
        "\"2\"",
        "\"4\"",
        "\"eleLock\"",
        "\"name\"",
        "\"argument\"",
        "\"mode\"",
        "\"E\"",
        "\"owner\"",
        "\"waitTime\"",
        "\"timeout\"",
        "\"uuid\"",
        "\"lockUUID\"",
        "\"@\"",
        "0",
        "-1.5e3",
        "1e999",
        "null",
        "true",
        "false",
        "\"\\u00e9\"",
        "\"\\ud800\"",
        "9007199254740993",
        r#"{"OP":"1","eleLock":{"name":"n","argument":["A"],"mode":"X","uuid":"u"}}"#,
    ];
    let mut random = Random::new(seed);
    let mut input = vec![random.bits() as u8];
    for _ in 0..random.between(1, 40) {
        input.extend(random.pick(&PARTS).bytes());
    }
    input
}

/// Requests over HTTP that are made of what they are made of.
fn http_requests(seed: u64) -> Vec<u8> {
    const LINES: [&str; 29] = [
        "POST /v1/tasks/p",
        "POST /v1/tasks/p",
        "POST /v1/tasks/p",
        "GET /v1/tasks",
        "GET /v1/tasks/p?state=free&prefix=%C3%A9&limit=2&cursor=1",
        "GET /v1/tasks/p",
        "POST /v1/tasks/p/claim",
        "POST /v1/tasks/p/claim",
        "GET /v1/tasks/p/k",
        "DELETE /v1/tasks/p/k",
        "PATCH /v1/tasks/p/k",
        "POST /v1/tasks/p/k/done",
        "POST /v1/tasks/p/k/back",
        "POST /v1/tasks/p/retry",
        "GET /v1/tasks/%70/%2F",
        "POST /v1/locks",
        "POST /v1/locks",
        "GET /v1/locks?name=n&waiters=true",
        "GET /v1/locks?limit=1&cursor=1&owner=%C3%A9",
        "GET /v1/locks/i",
        "DELETE /v1/locks/i",
        "DELETE /v1/locks/%ff",
        "POST /v1/locks/i/renew",
        "POST /v1/locks/i/promote",
        "POST /v1/revoke",
        "GET /v1/owners",
        "HEAD /openapi.json",
        "GET /readyz?verbose",
        "PUT /nothing",
    ];
    const HEADERS: [&str; 15] = [
        "If-Match: \"1\"",
        "If-Match: \"2\"",
        "If-Match: \"3\"",
        "If-Match: *",
        "If-Match: W/\"1\", x",
        "Connection: close",
        "Connection: keep-alive",
        "Authorization: Bearer klt_a_b",
        "If-None-Match: W/\"1-1\"",
        "Last-Event-ID: 1-1",
        "Content-Type: text/plain",
        "Transfer-Encoding: chunked",
        "Sec-Fetch-Site: cross-site",
        "Accept: */*",
        "X: \u{e9}",
    ];
    const BODIES: [&str; 22] = [
        r#"{"key":"k","body":{"a":[1.0,null]},"priority":-1.0}"#,
        r#"{"key":"k","body_base64":"AP8=","attempts":1,"id":"t"}"#,
        r#"{"key":"k","delay_ms":5,"body":"\u00e9"}"#,
        r#"{"tasks":[{"key":"k"},{"key":"l","body":1},{"key":"k"}]}"#,
        r#"{"tasks":[]}"#,
        r#"{"key":"k","owner":"o","lease_ms":0,"id":"c"}"#,
        r#"{"wait_ms":1,"key":"z"}"#,
        r#"{"body":[[]],"lease_ms":1}"#,
        r#"{"error":"e","delay_ms":1}"#,
        r#"{"key":"k","body":1e400}"#,
        "",
        "{}",
        r#"{"name":"n","id":"i"}"#,
        r#"{"name":"n","id":"i","mode":"O","lease_ms":5.0}"#,
        r#"{"name":"n","argument":["A",1.5,true,"@","\\@"],"mode":"S","meta":"m"}"#,
        r#"{"resources":[{"name":"a"},{"name":"b","mode":"E"}],"owner":"o","detect":true}"#,
        r#"{"name":"n","wait_ms":10,"max_hold_ms":1}"#,
        r#"{"lease_ms":90000}"#,
        r#"{"token":1,"reason":"r"}"#,
        r#"{"name":"n","argument":[1e999]}"#,
        r#"{"name":null,"owner":""}"#,
        "[[[[",
    ];
    let mut random = Random::new(seed);
    let mut input = vec![random.bits() as u8];
    for _ in 0..random.between(1, 5) {
        let (line, body) = (random.pick(&LINES), random.pick(&BODIES));
        let mut text = format!("{line} HTTP/1.1\r\nHost: localhost\r\n");
        if random.percent(90) {
            text += "Content-Type: application/json\r\n";
        }
        if random.percent(40) {
            let header = random.pick(&HEADERS);
            text += header;
            text += "\r\n";
        }
        let length = body.len() + usize::from(random.percent(5));
        input.extend(text.bytes());
        input.extend(format!("Content-Length: {length}\r\n\r\n{body}").bytes());
    }
    input
}

/// A few changes of the kind that a fuzzer makes.
fn mutate(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..random.between(1, 4) {
        let at = random.below(input.len() as u64 + 1) as usize;
        let end = (at + random.below(12) as usize).min(input.len());
        match random.below(6) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => input.insert(at, random.bits() as u8),
            3 => drop(input.drain(at..end)),
            4 => {
                let copy = input[at..end].to_vec();
                let to = random.below(input.len() as u64 + 1) as usize;
                input.splice(to..to, copy);
            }
            _ if !other.is_empty() => {
                let from = random.below(other.len() as u64) as usize;
                let piece = &other[from..(from + 12).min(other.len())];
                input.splice(at..end, piece.iter().copied());
            }
            _ => {}
        }
    }
}

/// Replays the corpus, then as many inputs again and again, changed and made anew.
fn replay(target: Target, made: u64, make: impl Fn(u64) -> Vec<u8>) {
    let corpus = corpus(target.0);
    for (name, input) in &corpus {
        passes(target, name, input);
    }
    for seed in 0..made {
        let mut random = Random::new(seed);
        let mut input = match seed % 4 {
            0 => make(seed),
            _ => random.pick(&corpus).1.clone(),
        };
        if seed % 8 > 0 {
            mutate(&mut random, &mut input, &corpus[seed as usize % corpus.len()].1);
        }
        passes(target, &format!("the input made from seed {seed}"), &input);
    }
}

#[test]
fn commands_pass_from_the_corpus_and_from_seeds() {
    replay(COMMANDS, MADE, |seed| if seed % 3 == 0 { bytes(seed, 200) } else { log(seed, 12) });
}

#[test]
fn scripts_pass_from_the_corpus_and_from_seeds() {
    replay(SCRIPT, MADE, |seed| bytes(seed, 300));
}

#[test]
fn snapshots_pass_from_the_corpus_and_from_seeds() {
    replay(
        SNAPSHOT,
        MADE,
        |seed| if seed % 3 == 0 { bytes(seed, 200) } else { image_input(seed, 25) },
    );
}

#[test]
fn requests_pass_from_the_corpus_and_from_seeds() {
    replay(
        RESP,
        MADE_FOR_PARSERS,
        |seed| if seed % 3 == 0 { bytes(seed, 300) } else { requests(seed) },
    );
}

#[test]
fn replies_pass_from_the_corpus_and_from_seeds() {
    replay(REPLY, MADE_FOR_PARSERS, |seed| bytes(seed, 300));
}

#[test]
fn enqueue_requests_pass_from_the_corpus_and_from_seeds() {
    replay(
        ENQUEUE,
        MADE_FOR_PARSERS,
        |seed| if seed % 3 == 0 { bytes(seed, 300) } else { json(seed) },
    );
}

#[test]
fn http_requests_pass_from_the_corpus_and_from_seeds() {
    replay(
        HTTP,
        MADE_FOR_PARSERS / 5, // each goes through a table and back, several times
        |seed| if seed % 3 == 0 { bytes(seed, 300) } else { http_requests(seed) },
    );
}

// ---- the controls: what is wrong is noticed -------------------------------------------------

fn fails(body: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(body)).is_err()
}

#[test]
fn the_corpus_notices_every_mistake_that_is_planted_in_the_model() {
    let (logs, scripts) = (corpus("commands"), corpus("script"));
    for bug in Bug::ALL {
        let planted = |settings: Settings, token| Model::new(settings, token).with_bug(bug);
        let by_logs = || logs.iter().any(|(_, i)| fails(|| fuzz::commands_beside(i, planted)));
        let by_scripts = || scripts.iter().any(|(_, i)| fails(|| fuzz::script_beside(i, planted)));
        assert!(by_scripts() || by_logs(), "{bug:?} was not noticed");
    }
}

#[test]
fn a_snapshot_with_any_byte_damaged_cut_off_or_added_is_refused() {
    for seed in 0..9 {
        let image = image(seed, 40);
        assert!(Table::restore(&image, 1).is_ok());
        for at in 0..image.len() {
            let mut damaged = image.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(Table::restore(&damaged, 1).is_err(), "seed {seed}: byte {at} is not checked");
            assert!(Table::restore(&image[..at], 1).is_err(), "seed {seed}: {at} bytes are enough");
        }
        assert!(Table::restore(&[&image[..], &[0]].concat(), 1).is_err());
    }
}

/// When the format changes, a corpus of snapshots can become one of bytes that are all refused.
#[test]
fn the_corpus_has_snapshots_of_all_kinds_that_are_accepted_and_some_that_are_refused() {
    let corpus = corpus("snapshot");
    let restored = |input: &Vec<u8>| {
        fuzz::readings(input).iter().find_map(|bytes| Table::restore(bytes, 1).ok())
    };
    let tables = corpus.iter().filter_map(|(_, input)| restored(input)).collect::<Vec<_>>();
    let stats = tables.iter().map(|table| match table.query(0, &Query::Stats) {
        Answer::Stats(stats) => [stats.held, stats.waiting, stats.ended, stats.tasks, stats.claims],
        other => unreachable!("{other:?}"),
    });
    let mut kinds = [0; 5];
    for stats in stats {
        (0..5).for_each(|kind| kinds[kind] += u64::from(stats[kind] > 0));
    }
    let enough = kinds.iter().all(|count| *count >= 5);
    assert!(
        enough,
        "accepted with holders, waiters, ended ids, tasks, claims: {kinds:?}; make it anew with KEYLATCH_WRITE_SEEDS=1"
    );
    assert!(tables.len() < corpus.len(), "no input of the corpus is damaged");
}

#[test]
fn a_snapshot_that_is_not_that_of_the_table_is_noticed() {
    let table = Table::new(Settings::default(), 7, 1);
    fuzz::assert_one_snapshot(&table.snapshot(), &table);
    let other = Table::new(Settings::default(), 8, 1);
    assert!(fails(|| fuzz::assert_one_snapshot(&other.snapshot(), &table)));
}

/// Into a scratch folder; with `KEYLATCH_WRITE_SEEDS=1` into the corpus, for a new one to begin with.
#[test]
fn seeds_for_a_corpus_can_be_made_anew() {
    let real = std::env::var_os("KEYLATCH_WRITE_SEEDS").is_some();
    let write = |target: &str, name: &str, input: &[u8]| {
        let scratch = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("seeds").join(target);
        let folder = if real { folder(target) } else { scratch };
        fs::create_dir_all(&folder).expect("a folder that can be made");
        fs::write(folder.join(name), input).expect("a folder to write to");
    };
    for seed in 0..27 {
        write("http", &format!("seed-{seed}"), &http_requests(seed));
        write("commands", &format!("seed-{seed}"), &log(seed, 40));
        write("script", &format!("seed-{seed}"), &bytes(seed, 400));
        write("snapshot", &format!("seed-{seed}"), &image_input(seed, 40));
    }
    for bug in Bug::ALL {
        let planted = |settings: Settings, token| Model::new(settings, token).with_bug(bug);
        let notices = |log: &Vec<u8>| fails(|| fuzz::commands_beside(log, planted));
        let lengths = [20, 40, 80].into_iter().flat_map(|steps| (0..90).map(move |s| (s, steps)));
        let found = lengths.map(|(seed, steps)| log(seed, steps)).find(notices);
        write("commands", &format!("notices-{bug:?}"), &found.expect("some run notices it"));
    }
}
