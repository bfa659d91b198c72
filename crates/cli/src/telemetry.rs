//! What the server says of itself while it runs: its log, and with the feature `otel` its traces.

use std::io::IsTerminal;

use anyhow::{Context, Result, bail};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// How the log is written.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// An object a line.
    Json,
}

/// Sends what is left when it is dropped.
#[must_use]
pub(crate) struct Traces {
    #[cfg(feature = "otel")]
    provider: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// What is logged. An error if nobody can tell what is meant.
pub(crate) fn filter() -> Result<EnvFilter> {
    match std::env::var("KEYLATCH_LOG").ok().filter(|text| !text.is_empty()) {
        None => Ok("warn,openraft=error,keylatch_server=info,keylatch::audit=info".into()),
        Some(text) => {
            let said = || {
                format!(
                    "KEYLATCH_LOG: '{text}' is not LEVEL or PART=LEVEL, with commas between, such as warn,keylatch_server=debug"
                )
            };
            // A mistyped level would be a part, of which there is nothing to log.
            let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
            let mut words = text.split(',').map(str::trim);
            if words.any(|word| !word.contains(['=', '[', ']']) && !is_level(word)) {
                bail!(said());
            }
            EnvFilter::try_new(&text).with_context(said)
        }
    }
}

/// Begins to log, and to send traces if there is somewhere to send them.
pub(crate) fn start(format: LogFormat) -> Result<Traces> {
    let filter = filter()?;
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
    };
    let registry = tracing_subscriber::registry().with(lines);
    #[cfg(feature = "otel")]
    {
        let provider = otel::provider()?;
        registry.with(provider.as_ref().map(otel::layer)).init();
        Ok(Traces { provider })
    }
    #[cfg(not(feature = "otel"))]
    {
        registry.init();
        Ok(Traces {})
    }
}

#[cfg(feature = "otel")]
impl Drop for Traces {
    fn drop(&mut self) {
        if let Some(provider) = &self.provider
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "some traces were not sent");
        }
    }
}

#[cfg(feature = "otel")]
mod otel {
    use anyhow::{Context, Result};
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::Subscriber;
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::registry::LookupSpan;

    /// Where the variables that every OpenTelemetry program knows say; nothing without them.
    pub(super) fn provider() -> Result<Option<SdkTracerProvider>> {
        let named = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
        if named.iter().all(|name| std::env::var_os(name).is_none()) {
            return Ok(None);
        }
        let exporter = SpanExporter::builder().with_http().build();
        let exporter = exporter.context("the exporter of traces cannot be made")?;
        let about = Resource::builder().with_service_name("keylatch").build();
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(about).build();
        Ok(Some(provider))
    }

    /// Only our own spans, whatever is logged.
    pub(super) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let only = Targets::new().with_target("keylatch::trace", LevelFilter::DEBUG);
        tracing_opentelemetry::layer().with_tracer(provider.tracer("keylatch")).with_filter(only)
    }
}
