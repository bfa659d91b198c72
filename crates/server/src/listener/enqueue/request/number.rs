//! Numbers as JavaScript sees them: the clients of this protocol are JavaScript, and two fields are
//! equal if `===` says so there. A number is therefore a double, and its canonical text is what
//! `String(number)` gives: `1.0` and `1` are one field, and so are `1e3` and `1000`.

/// The largest whole number that a double holds exactly together with all smaller ones.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// `String(value)` of JavaScript, for a value that is neither infinite nor NaN.
pub(crate) fn js_text(value: f64) -> String {
    let shortest = shortest(value.abs());
    let (mantissa, exponent) = shortest.split_once('e').expect("`{:e}` writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a whole exponent");
    let digits = mantissa.replace('.', "");
    let zeros = |count: usize| "0".repeat(count);
    let size = exponent.unsigned_abs() as usize;
    let text = match exponent {
        0..=20 if digits.len() <= size + 1 => digits.clone() + &zeros(size + 1 - digits.len()),
        0..=20 => format!("{}.{}", &digits[..=size], &digits[size + 1..]),
        -6..=-1 => format!("0.{}{digits}", zeros(size - 1)),
        _ => format!("{mantissa}e{}{size}", if exponent < 0 { '-' } else { '+' }),
    };
    // Minus zero is `0`, as it equals zero.
    if value < 0.0 { format!("-{text}") } else { text }
}

/// The fewest digits that read back as the same double and, of those, the nearest ones, in Rust's
/// form `1.5e-7`. Between two that are equally near, JavaScript takes the even one and Rust's
/// `{:e}` does not, so they are asked for again with a fixed precision, which rounds to even.
fn shortest(value: f64) -> String {
    let shortest = format!("{value:e}");
    let places = shortest.find('e').map_or(0, |end| end.saturating_sub(2));
    let even = format!("{value:.places$e}");
    // Next to a power of two the nearest digits may be those of a neighbour.
    if even.parse() == Ok(value) { even } else { shortest }
}

/// The number that a string stands for: decimal, white space around it allowed. Unlike Rust, not
/// `inf` and `nan`.
pub(super) fn from_text(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain =
        text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    if plain { text.parse().ok() } else { None }
}

/// Milliseconds, a fraction rounded up and the huge cut to what a list can show exactly; `None` if
/// negative or NaN. Minus zero is zero.
pub(super) fn whole_ms(value: f64) -> Option<u64> {
    if value < 0.0 || value.is_nan() {
        return None;
    }
    #[expect(clippy::cast_sign_loss, reason = "not negative, checked above")]
    let whole = value.ceil().min(MAX_SAFE) as u64;
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_javascript_writes_them() {
        for (json, text) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0e7", "0"),
            ("1", "1"),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("-12.50", "-12.5"),
            ("0.1", "0.1"),
            ("0.30000000000000004", "0.30000000000000004"),
            ("123456789012345680000", "123456789012345680000"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("-1.5e300", "-1.5e+300"),
            ("0.000001", "0.000001"),
            ("0.0000012", "0.0000012"),
            ("1e-7", "1e-7"),
            ("1.25e-7", "1.25e-7"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("9007199254740993", "9007199254740992"),
            ("1482470680062584.25", "1482470680062584.2"),
            ("5.684341886080802e-14", "5.684341886080802e-14"),
            ("9.109383632660656e-22", "9.109383632660656e-22"),
            ("18446744073709551615", "18446744073709552000"),
            ("1e-400", "0"),
        ] {
            assert_eq!(js_text(json.parse().unwrap()), text, "{json}");
        }
    }

    #[test]
    fn every_canonical_text_reads_back_as_the_same_number() {
        let mut bits = 1_u64;
        for _ in 0..20_000 {
            bits = bits
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(bits);
            if value.is_finite() {
                let text = js_text(value);
                assert_eq!(text.parse::<f64>().unwrap().to_bits(), bits, "{text}");
            }
        }
    }

    #[test]
    fn only_decimal_strings_are_numbers() {
        for (text, number) in
            [("5", Some(5.0)), (" 5.5 ", Some(5.5)), ("1e3", Some(1000.0)), ("-0", Some(-0.0))]
        {
            assert_eq!(from_text(text), number, "{text}");
        }
        for text in ["", "-", "e", "1e", "nan", "inf", "Infinity", "0x10", "1 2", "5ms", "1_000"] {
            assert_eq!(from_text(text), None, "{text}");
        }
    }

    #[test]
    fn milliseconds_are_rounded_up_and_bounded() {
        for (value, ms) in [
            (0.0, Some(0)),
            (-0.0, Some(0)),
            (0.001, Some(1)),
            (1.0, Some(1)),
            (1.5, Some(2)),
            (1e300, Some(9_007_199_254_740_991)),
            (f64::INFINITY, Some(9_007_199_254_740_991)),
            (-0.5, None),
            (f64::NAN, None),
        ] {
            assert_eq!(whole_ms(value), ms, "{value}");
        }
    }
}
