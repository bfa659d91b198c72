//! Durations as people write and read them.

use std::time::Duration;

/// A whole number and a unit: `500ms`, `5s`, `2m`, `1h`, `1d`; nothing is `0`. Options that are read by this allow
/// values that begin with a hyphen: else clap takes `-5s` for an option, and gives advice that does not help.
pub(crate) fn read(text: &str) -> Result<Duration, String> {
    parse(text, "0")
}

/// The same, of how long to wait.
pub(crate) fn read_wait(text: &str) -> Result<Duration, String> {
    parse(text, "0 for not at all")
}

fn parse(text: &str, zero: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration such as 500ms, 5s, 2m or 1h, or {zero}");
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "" if number == 0 => 0,
        "" => return Err(format!("{}: say the unit, as in {number}s", wrong())),
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

/// Two units at most.
pub(crate) fn show(ms: u64) -> String {
    let seconds = ms / 1_000;
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{seconds}.{}s", ms / 100 % 10),
        60_000..3_600_000 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600_000..86_400_000 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_mistakes_named() {
        for (text, ms) in [
            ("0", 0),
            ("500ms", 500),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(read(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["", "s", "-1s", "1.5s", "5 s", "5x", "5sm", "99999999999999999999s"] {
            assert!(read(text).unwrap_err().contains("is not a duration such as 500ms"), "{text}");
        }
        assert!(read(&format!("{}h", u64::MAX)).is_err());
        assert!(read_wait("-5s").unwrap_err().ends_with("1h, or 0 for not at all"));
        assert!(read("5").unwrap_err().contains("say the unit, as in 5s"));
    }

    #[test]
    fn durations_are_shown_in_two_units_at_most() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (12_345, "12.3s"),
            (125_000, "2m05s"),
            (3_720_000, "1h02m"),
            (90_000_000, "1d01h"),
        ] {
            assert_eq!(show(ms), text);
        }
    }
}
