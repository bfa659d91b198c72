//! The four lock modes and the one table that says which of them live together.

/// How a resource is locked. The default of every interface is [`Mode::Exclusive`] (`X`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mode {
    /// `S`: any number of holders.
    Shared = 0,
    /// `E`: exclusive, but one explicit owner may hold it several times.
    Cumulative = 1,
    /// `X`: exclusive, one holder, whoever asks.
    #[default]
    Exclusive = 2,
    /// `O`: optimistic; any number of holders, one of which may be promoted to `E`.
    Optimistic = 3,
}

impl Mode {
    /// All modes, in the order of their codes.
    pub const ALL: [Mode; 4] = [Mode::Shared, Mode::Cumulative, Mode::Exclusive, Mode::Optimistic];

    /// The letter used by every text protocol.
    pub fn letter(self) -> &'static str {
        match self {
            Mode::Shared => "S",
            Mode::Cumulative => "E",
            Mode::Exclusive => "X",
            Mode::Optimistic => "O",
        }
    }

    /// The mode that a letter names, in upper or lower case.
    pub fn from_letter(letter: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.letter().eq_ignore_ascii_case(letter))
    }

    /// The byte used in commands and snapshots.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Mode> {
        Mode::ALL.get(usize::from(code)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_name_the_modes_in_either_case() {
        for mode in Mode::ALL {
            assert_eq!(Mode::from_letter(mode.letter()), Some(mode));
            assert_eq!(Mode::from_letter(&mode.letter().to_lowercase()), Some(mode));
            assert_eq!(Mode::from_code(mode.code()), Some(mode));
        }
        assert_eq!(Mode::from_letter("Z"), None);
        assert_eq!(Mode::from_letter(""), None);
        assert_eq!(Mode::from_code(4), None);
        assert_eq!(Mode::default(), Mode::Exclusive);
    }
}
