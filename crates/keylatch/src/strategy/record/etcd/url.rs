//! `etcd://[user:password@]host:port,host:port[?prefix=..]`, and `etcds://` with TLS.

use super::keys::unescape;

/// etcd's own.
const PORT: u16 = 2379;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Url {
    /// As `http://host:port`.
    pub(super) endpoints: Vec<String>,
    pub(super) user: Option<(String, String)>,
    pub(super) prefix: String,
    pub(super) tls: Option<Tls>,
}

/// Files with certificates in PEM. Without any, the certificates that the machine trusts count.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) ca: Option<String>,
    /// A certificate of the client and its key.
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
}

impl Url {
    pub(super) fn parse(url: &str) -> Result<Url, String> {
        let (tls, rest) = match url.split_once("://") {
            Some(("etcd", rest)) => (None, rest),
            Some(("etcds", rest)) => (Some(Tls::default()), rest),
            _ => return Err("not etcd://HOST:PORT".into()),
        };
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        // The last one: a password may have one too, although it should be written as %40.
        let (user, hosts) = match place.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, place),
        };
        let text = |text: &str| unescape(text).ok_or(format!("'{text}' has a wrong % in it"));
        let user = match user.map(|user| user.split_once(':')) {
            Some(Some((user, password))) => Some((text(user)?, text(password)?)),
            Some(None) => return Err("a user needs a password: etcd://USER:PASSWORD@HOST".into()),
            None => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let hosts = hosts.trim_end_matches('/').split(',');
        let endpoints = hosts.map(|host| endpoint(scheme, host)).collect::<Result<_, _>>()?;
        let mut url = Url { endpoints, user, prefix: "keylatch/".into(), tls };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            url.option(name, text(value)?)?;
        }
        if url.tls.as_ref().is_some_and(|tls| tls.cert.is_some() != tls.key.is_some()) {
            return Err("cert and key need each other".into());
        }
        Ok(url)
    }

    fn option(&mut self, name: &str, value: String) -> Result<(), String> {
        match (name, &mut self.tls) {
            ("prefix", _) => self.prefix = value,
            ("ca", Some(tls)) => tls.ca = Some(value),
            ("cert", Some(tls)) => tls.cert = Some(value),
            ("key", Some(tls)) => tls.key = Some(value),
            ("ca" | "cert" | "key", None) => return Err(format!("{name} is for etcds://")),
            _ => return Err(format!("there is no option '{name}': only prefix, ca, cert, key")),
        }
        Ok(())
    }
}

fn endpoint(scheme: &str, host: &str) -> Result<String, String> {
    // Colons also stand in an IPv6 address, which has brackets then.
    let after_address = host.rsplit_once(']').map_or(host, |(_, after)| after);
    match after_address.rsplit_once(':') {
        _ if host.is_empty() => Err("a host is missing".into()),
        Some((_, port)) if port.parse::<u16>().is_err() => Err(format!("'{port}' is no port")),
        Some(_) => Ok(format!("{scheme}://{host}")),
        None => Ok(format!("{scheme}://{host}:{PORT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_everything() {
        let url = Url::parse("etcd://a:1,b,[::1]:3,[::2]").ok().unwrap();
        assert_eq!(
            url.endpoints,
            ["http://a:1", "http://b:2379", "http://[::1]:3", "http://[::2]:2379"]
        );
        assert!(url.user.is_none() && url.tls.is_none() && url.prefix == "keylatch/");
        let url =
            Url::parse("etcds://u%3a:p@@h:1/?prefix=x%2Fy&ca=/c&cert=/d&key=/e").ok().unwrap();
        assert_eq!(url.endpoints, ["https://h:1"]);
        assert_eq!(url.user, Some(("u:".into(), "p@".into())));
        assert_eq!(url.prefix, "x/y");
        let tls = url.tls.unwrap();
        assert_eq!(
            (tls.ca, tls.cert, tls.key),
            (Some("/c".into()), Some("/d".into()), Some("/e".into()))
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for url in [
            "etcd:x",
            "etcd://",
            "etcd://a,,b",
            "etcd://a:x",
            "etcd://u@a",
            "etcd://a?x=1",
            "etcd://a?ca=/c",
            "etcds://a?cert=/c",
            "etcd://a?prefix=%z",
        ] {
            assert!(Url::parse(url).is_err(), "{url}");
        }
    }
}
