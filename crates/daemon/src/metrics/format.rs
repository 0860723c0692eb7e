/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, for readers that know no other.
    PrometheusText,
}

impl Format {
    /// What a reader gets that accepts this: the text format if it names that and not OpenMetrics.
    pub fn accepted(accept: &str) -> Format {
        let names = |kind: &str| {
            let mut kinds = accept.split(',').map(|one| one.split(';').next().unwrap_or(one));
            kinds.any(|one| one.trim().eq_ignore_ascii_case(kind))
        };
        if names("text/plain") && !names("application/openmetrics-text") {
            Format::PrometheusText
        } else {
            Format::OpenMetrics
        }
    }

    /// The content type of the answer.
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::PrometheusText => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Metrics that are written as OpenMetrics, in this format.
    pub fn write(self, openmetrics: String) -> String {
        match self {
            Format::OpenMetrics => openmetrics,
            Format::PrometheusText => prometheus_text(&openmetrics),
        }
    }
}

/// Samples are the same. The families of counters have the samples' names there, and units and the
/// end are unknown.
fn prometheus_text(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len() + 1024);
    let mut line = |parts: &[&str]| {
        parts.iter().for_each(|part| out.push_str(part));
        out.push('\n');
    };
    // The family's name depends on its type, which comes after.
    let mut help = None;
    for one in openmetrics.lines() {
        if let Some(text) = one.strip_prefix("# HELP ") {
            help = text.split_once(' ');
        } else if let Some((name, kind)) =
            one.strip_prefix("# TYPE ").and_then(|text| text.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some((_, text)) = help.take() {
                line(&["# HELP ", name, suffix, " ", text]);
            }
            line(&["# TYPE ", name, suffix, " ", kind]);
        } else if !one.starts_with('#') {
            line(&[one]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_names_the_text_format_alone_gets_it() {
        for accept in ["text/plain", "text/plain;version=0.0.4;q=0.9, */*;q=0.1", "TEXT/PLAIN"] {
            assert_eq!(Format::accepted(accept), Format::PrometheusText, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/html",
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2",
        ] {
            assert_eq!(Format::accepted(accept), Format::OpenMetrics, "{accept}");
        }
    }

    #[test]
    fn families_are_called_as_the_text_format_calls_them() {
        let openmetrics = "\
# HELP x_ops Requests.
# TYPE x_ops counter
# UNIT x_ops ios
x_ops_total{disk=\"# a\"} 7
# HELP x_host Who.
# TYPE x_host info
x_host_info{name=\"h\"} 1
# HELP x_s Time.
# TYPE x_s histogram
x_s_bucket{le=\"1.0\"} 2
# EOF
";
        let text = "\
# HELP x_ops_total Requests.
# TYPE x_ops_total counter
x_ops_total{disk=\"# a\"} 7
# HELP x_host_info Who.
# TYPE x_host_info gauge
x_host_info{name=\"h\"} 1
# HELP x_s Time.
# TYPE x_s histogram
x_s_bucket{le=\"1.0\"} 2
";
        assert_eq!(Format::PrometheusText.write(openmetrics.into()), text);
        assert_eq!(Format::OpenMetrics.write(openmetrics.into()), openmetrics);
    }
}
