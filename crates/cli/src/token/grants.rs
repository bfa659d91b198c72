//! `--prefix P --right R ..`, several times: a right belongs to the prefix before it. The order of
//! different options is what clap's derive does not tell, so it is read by hand.

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use keylatch_server::access::{Right, Rule};

#[derive(Debug, Default)]
pub(super) struct Grants(Vec<(String, Vec<Right>)>);

impl Grants {
    pub(super) fn rules(&self) -> Vec<Rule> {
        self.0.iter().map(|(prefix, rights)| Rule::new(prefix, rights)).collect()
    }
}

impl Args for Grants {
    fn augment_args(command: Command) -> Command {
        let prefix = Arg::new("prefix")
            .long("prefix")
            .value_name("PREFIX")
            .action(ArgAction::Append)
            .help("Names that begin so, for the rights that follow; '' is every name");
        let right = Arg::new("right")
            .long("right")
            .value_name("RIGHT")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .value_parser(PossibleValuesParser::new(Right::ALL.map(Right::word)))
            .help("What it may do with those names; several with commas, or several times");
        command.arg(prefix).arg(right)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Grants::augment_args(command)
    }
}

impl FromArgMatches for Grants {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Grants, Error> {
        let mut words: Vec<(usize, &str, bool)> = Vec::new();
        for (option, is_prefix) in [("prefix", true), ("right", false)] {
            let values = matches.get_many::<String>(option).into_iter().flatten();
            let places = matches.indices_of(option).into_iter().flatten();
            words.extend(places.zip(values).map(|(at, value)| (at, value.as_str(), is_prefix)));
        }
        words.sort_unstable();
        let mut grants = Grants::default();
        for (_, word, is_prefix) in words {
            if is_prefix {
                grants.0.push((word.to_owned(), Vec::new()));
                continue;
            }
            let right = Right::from_word(word).expect("clap takes only those");
            match grants.0.last_mut() {
                Some((_, rights)) => rights.push(right),
                None => {
                    return wrong(
                        "--right comes behind the --prefix that it is for; '' is every name",
                    );
                }
            }
        }
        match grants.0.iter().find(|(_, rights)| rights.is_empty()) {
            Some((prefix, _)) => wrong(&format!(
                "--prefix '{prefix}' has no rights: add --right, such as --right shared,exclusive"
            )),
            None => Ok(grants),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Grants::from_arg_matches(matches)?;
        Ok(())
    }
}

fn wrong(text: &str) -> Result<Grants, Error> {
    Err(Error::raw(ErrorKind::MissingRequiredArgument, text))
}
