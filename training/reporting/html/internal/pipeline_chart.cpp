#include "lockstep/training/reporting/html/internal/pipeline_chart.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/internal/utf8_text.h"
#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/plot_axis.h"
#include "lockstep/training/reporting/html/internal/svg_shapes.h"

namespace lockstep {
namespace {

constexpr double kChartWidth = 1060;
constexpr double kRight = 14;
constexpr double kPanelTitle = 24;
constexpr double kBetweenPanels = 16;
constexpr double kBelowPanels = 46;  // tick labels and the unit
constexpr double kNumberSize = 11;
constexpr size_t kMostBoxes = 60'000;
constexpr size_t kMostTips = 10'000;
constexpr int64_t kMostRows = 128;

/// A computation in one of the two panels.
struct Box {
  PipelineAction action;
  double begin = 0;
  double end = 0;
};

struct Panel {
  std::string name;
  double bubble = 0;
  double seconds = 0;
  std::vector<std::vector<Box>> ranks;
};

void check_action(const PipelineRecord& record, const PipelineActionRecord& action) {
  constexpr double kMostSeconds = 1e9;
  if (action.rank < 0 || action.rank >= record.ranks) {
    throw InvalidArgument("[PipelineRecord] expected ranks from 0 to " + std::to_string(record.ranks - 1) +
                          ", but got " + std::to_string(action.rank));
  }
  const auto is_right = [](double begin, double end) {
    return begin >= 0 && begin <= end && end <= kMostSeconds;
  };
  if (is_right(action.planned_begin, action.planned_end) && is_right(action.begin, action.end)) return;
  throw InvalidArgument("[PipelineRecord] expected times from 0 to 1e9 s, but got " +
                        short_number(action.planned_begin) + " to " + short_number(action.planned_end) +
                        " s planned and " + short_number(action.begin) + " to " + short_number(action.end) +
                        " s measured for " + describe(action.action) + " on rank " +
                        std::to_string(action.rank));
}

size_t check_pipeline(const PipelineRecord& record) {
  size_t boxes = 0;
  for (const auto& action : record.actions) {
    check_action(record, action);
    if (is_pipeline_computation(action.action.op)) boxes += 2;
  }
  if (boxes == 0) {
    throw InvalidArgument("[PipelineRecord] expected computations, but got none among " +
                          std::to_string(record.actions.size()) + " actions");
  }
  return boxes;
}

std::array<Panel, 2> panels_of(const PipelineRecord& record) {
  std::array<Panel, 2> panels{
      {{.name = "Planned", .bubble = record.planned_bubble, .seconds = record.planned_seconds},
       {.name = "Measured", .bubble = record.bubble, .seconds = record.seconds}}};
  for (auto& panel : panels) panel.ranks.resize(static_cast<size_t>(record.ranks));
  for (const auto& action : record.actions) {
    if (!is_pipeline_computation(action.action.op)) continue;
    const auto rank = static_cast<size_t>(action.rank);
    panels[0].ranks[rank].push_back({action.action, action.planned_begin, action.planned_end});
    panels[1].ranks[rank].push_back({action.action, action.begin, action.end});
  }
  return panels;
}

struct TimeUnit {
  double per_second = 1;
  std::string name = "seconds";
  std::string symbol = "s";
};

TimeUnit unit_for(double seconds) {
  if (seconds >= 1 || seconds <= 0) return {};
  if (seconds >= 1e-3) return {1e3, "milliseconds", "ms"};
  return {1e6, "microseconds", "\u00b5s"};
}

/// Position of the panels and scale of their axis.
struct ChartFrame {
  TimeUnit unit;
  PlotAxis axis;
  double left = 0;
  double row = 0;   ///< from one rank to the next
  double tall = 0;  ///< of a box
  double panel = 0;
  double bottom = 0;

  double place(double seconds) const {
    const double share = (seconds * unit.per_second - axis.low) / (axis.high - axis.low);
    return left + share * (kChartWidth - left - kRight);
  }
  double top(size_t panel_number, size_t rank) const {
    return static_cast<double>(panel_number) * (panel + kBetweenPanels) + kPanelTitle +
           static_cast<double>(rank) * row;
  }
};

std::string rank_label(size_t rank) {
  return "rank " + std::to_string(rank);
}

ChartFrame lay_out_chart(const std::array<Panel, 2>& panels) {
  double last = 0;
  for (const auto& panel : panels)
    for (const auto& rank : panel.ranks)
      for (const auto& box : rank) last = std::max(last, box.end);
  const size_t ranks = panels[0].ranks.size();
  ChartFrame frame;
  frame.unit = unit_for(last);
  frame.axis =
      make_axis(0, last > 0 ? last * frame.unit.per_second : 1, {.max_ticks = 10, .ends_at_ticks = false});
  frame.left = text_width(rank_label(ranks - 1), kPlotFontSize) + 8;
  frame.row = ranks <= 8 ? 26 : ranks <= 16 ? 20 : ranks <= 32 ? 12 : 8;
  frame.tall = frame.row - (ranks <= 16 ? 4 : 2);
  frame.panel = kPanelTitle + frame.row * static_cast<double>(ranks);
  frame.bottom = 2 * frame.panel + kBetweenPanels;
  return frame;
}

std::string bubble_text(double bubble) {
  return fixed_number(bubble, 3);
}

std::string time_text(double seconds, const TimeUnit& unit) {
  return short_number(seconds * unit.per_second, 3) + " " + unit.symbol;
}

std::string chart_axis(const ChartFrame& frame) {
  std::string shapes;
  double free_from = -1;
  for (const auto& tick : frame.axis.ticks) {
    const double x = frame.place(tick.value / frame.unit.per_second);
    const double half = text_width(tick.label, kPlotFontSize) / 2;
    for (const size_t panel : {0, 1})
      shapes +=
          svg_line({x, frame.top(panel, 0)}, {x, frame.top(panel, 0) + frame.panel - kPanelTitle}, "grid");
    if (x - half < free_from || x + half > kChartWidth) continue;
    shapes += svg_text({x, frame.bottom + 18}, tick.label, TextAnchor::kMiddle);
    free_from = x + half + 6;
  }
  shapes += svg_line({frame.left, frame.bottom}, {kChartWidth - kRight, frame.bottom}, "axis");
  return shapes + svg_text({frame.left + (kChartWidth - kRight - frame.left) / 2, frame.bottom + 38},
                           frame.unit.name, TextAnchor::kMiddle, "label");
}

std::string chart_labels(const Panel& panel, size_t number, const ChartFrame& frame) {
  constexpr double kLineHeight = 16;
  std::string shapes = svg_text(
      {frame.left, frame.top(number, 0) - 8},
      panel.name + ": bubble " + bubble_text(panel.bubble) + ", " + time_text(panel.seconds, frame.unit),
      TextAnchor::kStart, "value");
  const auto every = static_cast<size_t>(std::max(1.0, kLineHeight / frame.row + 0.999));
  for (size_t rank = 0; rank < panel.ranks.size(); rank += every) {
    shapes += svg_text({frame.left - 8, frame.top(number, rank) + frame.tall / 2 + 4.5}, rank_label(rank),
                       TextAnchor::kEnd);
  }
  return shapes;
}

/// Returns the CSS class of a box. A rank's later stages are paler than its first, with an outline.
std::string style_of_box(const PipelineAction& action, int first_stage) {
  const char* kind = "f";
  if (action.op == PipelineOp::kBackward) kind = "b";
  if (action.op == PipelineOp::kBackwardInputs) kind = "i";
  if (action.op == PipelineOp::kBackwardWeights) kind = "w";
  return action.stage > first_stage ? std::string("later ") + kind : kind;
}

std::string words_of(PipelineOp op) {
  if (op == PipelineOp::kBackwardInputs) return "backward for inputs";
  if (op == PipelineOp::kBackwardWeights) return "backward for weights";
  return pipeline_op_name(op);
}

/// The row of one rank in a panel.
class RankRow {
 public:
  RankRow(const std::vector<Box>& boxes, size_t rank, double top, const ChartFrame& frame)
      : boxes_(boxes), rank_(rank), top_(top), frame_(frame) {
    for (const auto& box : boxes) first_stage_ = std::min(first_stage_, box.action.stage);
  }

  /// Returns the time between the first and the last computation: boxes leave the waiting visible.
  std::string waiting() const {
    if (boxes_.empty()) return "";
    double busy = 0;
    double begin = boxes_.front().begin;
    double end = 0;
    for (const auto& box : boxes_) {
      busy += box.end - box.begin;
      begin = std::min(begin, box.begin);
      end = std::max(end, box.end);
    }
    const double share = end > begin ? std::max(0.0, 1 - busy / (end - begin)) : 0;
    return svg_rectangle({frame_.place(begin), top_, frame_.place(end) - frame_.place(begin), frame_.tall},
                         "wait", rank_label(rank_) + " waits " + bubble_text(share) + " of its time");
  }

  /// Returns a path, a tip and perhaps a number for each box.
  std::string boxes() const {
    std::string shapes;
    for (const auto& box : boxes_) {
      const std::string style = style_of_box(box.action, first_stage_);
      const std::string number = std::to_string(box.action.micro_batch);
      shapes += svg_path(outline(box), style,
                         rank_label(rank_) + ", stage " + std::to_string(box.action.stage) +
                             ", micro-batch " + number + ": " + words_of(box.action.op) + ", " +
                             time_text(box.end - box.begin, frame_.unit));
      const double left = frame_.place(box.begin), right = frame_.place(box.end);
      if (frame_.tall < kNumberSize + 3 || right - left < text_width(number, kNumberSize) + 3) continue;
      shapes += svg_text({(left + right) / 2, top_ + frame_.tall / 2 + 4}, number, TextAnchor::kMiddle,
                         style.starts_with("later") ? "count" : "on-heat");
    }
    return shapes;
  }

  /// Returns one path for all boxes of the same style, for more of them than a pointer could rest on.
  std::string merged_boxes() const {
    std::map<std::string, std::string> paths;
    for (const auto& box : boxes_) paths[style_of_box(box.action, first_stage_)] += outline(box);
    std::string shapes;
    for (const auto& [style, path] : paths) shapes += svg_path(path, style);
    return shapes;
  }

 private:
  std::string outline(const Box& box) const {
    constexpr double kThinnest = 0.2;  // an empty path would not be seen at all
    constexpr double kGap = 0.8;       // tells a box from the next of the same colour
    const double left = frame_.place(box.begin);
    const double width = frame_.place(box.end) - left;
    const std::string top = svg_number(top_);
    return "M" + svg_number(left) + " " + top + "v" + svg_number(frame_.tall) + "h" +
           svg_number(std::max(width - std::min(kGap, width / 8), kThinnest)) + "V" + top + "z";
  }

  const std::vector<Box>& boxes_;
  size_t rank_;
  double top_;
  const ChartFrame& frame_;
  int first_stage_ = std::numeric_limits<int>::max();
};

std::string chart_legend(const std::array<Panel, 2>& panels) {
  std::set<PipelineOp> ops;
  bool has_later = false;
  for (const auto& rank : panels[0].ranks) {
    for (const auto& box : rank) {
      ops.insert(box.action.op);
      has_later = has_later || box.action.stage != rank.front().action.stage;
    }
  }
  std::string items;
  const auto add = [&](const std::string& shape, const std::string& name) {
    items += "<li><svg class=\"key ops\" width=\"16\" height=\"12\" aria-hidden=\"true\">" + shape +
             "</svg>" + escape_html(name) + "</li>\n";
  };
  constexpr const char* kKey = "M1 1h14v10h-14z";
  for (const PipelineOp op : ops) add(svg_path(kKey, style_of_box({.op = op}, 0)), words_of(op));
  if (has_later) add(svg_path(kKey, "later f"), "outlined: later stages of a rank");
  add(svg_rectangle({1, 1, 14, 10}, "wait"), "waiting");
  return "<ul class=\"legend\">\n" + items + "</ul>\n";
}

std::string bubbles_text(const PipelineRecord& record) {
  return "bubble planned " + bubble_text(record.planned_bubble) + ", measured " + bubble_text(record.bubble);
}

std::string number_of(int64_t count, const std::string& one) {
  return grouped_number(count) + " " + one + (count == 1 ? "" : one.ends_with("h") ? "es" : "s");
}

std::string schedule_text(const PipelineRecord& record) {
  constexpr size_t kLongestName = 40;
  return shortened(record.schedule, kLongestName);
}

}  // namespace

std::string pipeline_figure(const PipelineRecord& record) {
  const size_t num_boxes = check_pipeline(record);
  if (num_boxes > kMostBoxes || record.ranks > kMostRows) return "";
  const auto panels = panels_of(record);
  const ChartFrame frame = lay_out_chart(panels);
  std::string shapes = chart_axis(frame);
  for (size_t number = 0; number < panels.size(); ++number) {
    shapes += chart_labels(panels[number], number, frame);
    for (size_t rank = 0; rank < panels[number].ranks.size(); ++rank) {
      const RankRow row(panels[number].ranks[rank], rank, frame.top(number, rank), frame);
      shapes += row.waiting() + (num_boxes <= kMostTips ? row.boxes() : row.merged_boxes());
    }
  }
  constexpr double kLegible = 0.7;  // share of the natural size, on narrow screens
  return plot_figure({.caption = "Schedule " + schedule_text(record),
                      .summary = "Computations of " + std::to_string(record.ranks) + " ranks over time; " +
                                 bubbles_text(record),
                      .legend = chart_legend(panels),
                      .width = kChartWidth,
                      .height = frame.bottom + kBelowPanels,
                      .shapes = "<g class=\"ops\">\n" + shapes + "</g>\n",
                      .grows = false,
                      .narrowest = kChartWidth * kLegible});
}

void add_pipeline(const RunRecord& record, HtmlPage& page) {
  if (!record.pipeline) return;
  const PipelineRecord& pipeline = *record.pipeline;
  page.heading("Pipeline");
  page.paragraph("Step " + grouped_number(pipeline.step) + ", " + number_of(pipeline.stages, "stage") +
                 " on " + number_of(pipeline.ranks, "rank") + ", " +
                 number_of(pipeline.micro_batches, "micro-batch") + ": " + bubbles_text(pipeline) +
                 ". The bubble is the largest share of its time that a rank waits, from its first "
                 "computation to its last. The plan has the median of the times that each stage took.");
  const std::string figure = pipeline_figure(pipeline);
  if (figure.empty()) {
    page.paragraph("There are too many computations or ranks for a chart.");
  } else {
    page.figures({figure});
  }
}

}  // namespace lockstep
