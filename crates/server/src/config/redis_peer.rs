//! A Redis at which members of a cluster meet, as a URL says it.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::ConfigError;

/// Where members meet that cannot reach each other: a Redis, and under which names.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisPeer {
    url: String,
    channel: String,
    node: Option<String>,
    tls: RedisTls,
}

/// Files of a `rediss://` URL: whom to trust instead of those whom the machine trusts, and who we are.
#[derive(Clone, Default, PartialEq, Eq)]
struct RedisTls {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

/// What is in them.
#[cfg_attr(not(feature = "redis"), allow(dead_code))]
pub(crate) struct RedisCertificates {
    pub(crate) ca: Option<Vec<u8>>,
    /// Certificate and key.
    pub(crate) own: Option<(Vec<u8>, Vec<u8>)>,
}

/// A URL may have a password in it, so it is not shown.
impl fmt::Debug for RedisPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for RedisPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node.as_deref().unwrap_or_default();
        write!(f, "Redis at {}, as {}:{node}", self.host(), self.channel)
    }
}

/// Names stand in every message.
const NAME_BYTES: usize = 200;

impl RedisPeer {
    /// Whether a peer address is one.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("redis://") || text.starts_with("rediss://")
    }

    /// `redis://[USER:PASSWORD@]HOST[:PORT][/DB]?channel=CHANNEL[&node=NAME]`; `rediss://` is inside of TLS, with
    /// `&ca=FILE`, and `&cert=FILE&key=FILE`, if the Redis wants to know who we are.
    pub fn parse(text: &str) -> Result<RedisPeer, ConfigError> {
        let wrong = |why: &str| ConfigError::RedisUrl(why.into());
        let (url, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut channel, mut node, mut others) = (None, None, Vec::new());
        let mut tls = RedisTls::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let to = match name {
                "channel" => &mut channel,
                "node" => &mut node,
                "ca" => &mut tls.ca,
                "cert" => &mut tls.cert,
                "key" => &mut tls.key,
                _ => {
                    others.push(pair);
                    continue;
                }
            };
            let decoded = percent_decode_str(value).decode_utf8();
            *to = Some(decoded.map_err(|_| wrong(&format!("{name} is not UTF-8")))?.into());
        }
        if tls.cert.is_some() != tls.key.is_some() {
            return Err(wrong("cert and key belong together"));
        }
        if tls != RedisTls::default() && !url.starts_with("rediss://") {
            return Err(wrong("ca, cert and key need rediss://"));
        }
        let channel = channel.filter(|it| !it.is_empty() && it.len() <= NAME_BYTES);
        let channel = channel.ok_or_else(|| wrong("it names no channel: add ?channel=NAME"))?;
        let url = match others.is_empty() {
            true => url.into(),
            false => format!("{url}?{}", others.join("&")),
        };
        let peer = RedisPeer { url, channel, node: None, tls };
        match node {
            Some(node) => peer.with_node(node),
            None => Ok(peer),
        }
    }

    /// The same, for the node with this name.
    pub fn with_node(self, node: String) -> Result<RedisPeer, ConfigError> {
        let good = |it: char| !it.is_control() && !it.is_whitespace() && it != ',' && it != ':';
        if node.is_empty() || node.len() > NAME_BYTES || !node.chars().all(good) {
            let text =
                format!("'{node}' is no name of a node: use letters and digits, such as one");
            return Err(ConfigError::RedisUrl(text));
        }
        Ok(RedisPeer { node: Some(node), ..self })
    }

    /// The name of the node that is meant: this one, or the one that is visited.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// With the password.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// Reads the files with certificates; `None` if it names none.
    pub(crate) fn certificates(&self) -> Result<Option<RedisCertificates>, ConfigError> {
        let read = |file: &String| {
            std::fs::read(file).map_err(|error| ConfigError::RedisUrl(format!("{file}: {error}")))
        };
        let RedisTls { ca, cert, key } = &self.tls;
        let ca = ca.as_ref().map(read).transpose()?;
        let own = match (cert, key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            _ => None,
        };
        let named = ca.is_some() || own.is_some();
        Ok(named.then_some(RedisCertificates { ca, own }))
    }

    fn host(&self) -> &str {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let rest = rest.split('/').next().unwrap_or_default();
        rest.rsplit_once('@').map_or(rest, |(_, host)| host)
    }

    /// Whether what is said could be read, or said by anybody, on the way.
    pub(super) fn is_exposed(&self) -> bool {
        let host = self.host();
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        let address = host.parse::<std::net::IpAddr>();
        let near = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        !near && !self.url.starts_with("rediss://")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_channel_and_perhaps_a_node() {
        let peer =
            RedisPeer::parse("redis://ann:secret@host:7/2?channel=my%20locks&node=one").unwrap();
        assert_eq!(peer.url(), "redis://ann:secret@host:7/2");
        assert_eq!((peer.channel(), peer.node()), ("my locks", Some("one")));
        assert!(peer.is_exposed());
        assert!(!format!("{peer:?} {peer}").contains("secret"), "{peer}");
        let peer = RedisPeer::parse("redis://[::1]:7?protocol=resp3&channel=c").unwrap();
        assert_eq!((peer.url(), peer.node()), ("redis://[::1]:7?protocol=resp3", None));
        assert!(!peer.is_exposed());
        assert!(!RedisPeer::parse("rediss://far?channel=c").unwrap().is_exposed());
        for wrong in ["redis://h", "redis://h?channel=", "redis://h?node=a"] {
            let error = RedisPeer::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("?channel=NAME"), "{error}");
        }
        let peer = RedisPeer::parse("rediss://h?channel=c&ca=/a%20b&db=1&cert=/c&key=/k").unwrap();
        assert_eq!(peer.url(), "rediss://h?db=1");
        let error = peer.certificates().err().unwrap().to_string();
        assert!(error.contains("/a b: No such file"), "{error}");
        for (wrong, why) in [
            ("redis://h?channel=c&ca=/a", "need rediss://"),
            ("rediss://h?channel=c&cert=/c", "belong together"),
            ("rediss://h?channel=c&ca=%ff", "ca is not UTF-8"),
        ] {
            let error = RedisPeer::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        for wrong in ["", "a:b", "a,b", "a b"] {
            assert!(
                RedisPeer::parse(&format!("redis://h?channel=c&node={wrong}")).is_err(),
                "{wrong}"
            );
        }
    }
}
