//! The points that a datastore's model is learnt from, and the line through them.

use headgate_api::placement::ModelPoint;
use headgate_model::Name;
use headgate_placement::{DeviceModel, Outstanding};
use headgate_report::plot::{Figure, Line, Panel};

/// Places on the line that are drawn.
const STEPS: u32 = 200;

pub(super) fn figure(
    datastore: &Name,
    model: Option<&DeviceModel>,
    points: &[ModelPoint],
) -> Figure {
    let end = points.iter().map(|point| point.outstanding).fold(1.0, f64::max) * 1.05;
    let measured = |good: bool| -> Line {
        let wanted = points.iter().filter(|point| point.doubt.is_none() == good);
        wanted
            .flat_map(|point| [Some((point.outstanding, point.latency.0 as f64 / 1e6)), None])
            .collect()
    };
    let predicted = |step: u32| {
        let outstanding = end * f64::from(step) / f64::from(STEPS);
        let latency = model?.latency(Outstanding::of(outstanding));
        Some((outstanding, latency.0 as f64 / 1e6))
    };
    let fitted: Line = (0..=STEPS).map(predicted).collect();
    let second = points.iter().filter(|point| point.doubt.is_some()).count();
    let (mut lines, mut legend) = (
        vec![measured(true), fitted],
        vec![format!("{} intervals", points.len() - second), "model".into()],
    );
    if second > 0 {
        lines.push(measured(false));
        legend.push(format!("{second} doubtful"));
    }
    let panel = Panel::of_lines("latency of reads (ms)", lines);
    Figure {
        title: format!("{datastore}: latency over outstanding reads"),
        axis: "reads outstanding at the device".into(),
        end,
        panels: vec![panel],
        legend,
        note: model.map(|model| format!("P {:.3}, R² {}", model.slope.ability(), model.explained)),
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::LeftOut;
    use headgate_units::{Bytes, Nanos};

    #[test]
    fn points_and_line_are_drawn() {
        let point = |n: u64| ModelPoint {
            at: Nanos(n),
            outstanding: n as f64,
            latency: Nanos::from_micros(3_000 + 500 * n),
            size: Bytes::from_kib(8),
            random: 1.0,
            doubt: (n > 8).then_some(LeftOut::Windowed),
        };
        let points: Vec<ModelPoint> = (0..60).map(|n| point(n % 12 + 1)).collect();
        let figure = figure(&"array".parse().unwrap(), None, &points);
        let text = headgate_report::plot::svg(&[figure]).unwrap();
        assert_eq!(text.matches("<circle").count(), 60);
        assert!(
            text.contains("40 intervals")
                && text.contains("20 doubtful")
                && text.contains("latency of reads")
        );
    }
}
