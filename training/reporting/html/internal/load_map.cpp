#include "lockstep/training/reporting/html/internal/load_map.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iomanip>
#include <sstream>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/svg_shapes.h"

namespace lockstep {
namespace {

void check_loads(const ExpertLoad& load) {
  const auto count = static_cast<int64_t>(load.loads.size());
  if (load.num_experts < 1 || count == 0 || count % load.num_experts != 0) {
    throw InvalidArgument("[ExpertLoad] expected a load for each expert of each layer, but got " +
                          std::to_string(count) + " loads of " + std::to_string(load.num_experts) +
                          " experts a layer");
  }
  for (const double value : load.loads) {
    if (value >= 0 && std::isfinite(value)) continue;
    throw InvalidArgument("[ExpertLoad] expected loads of 0 or more, but got " + std::to_string(value));
  }
}

/// Position of the cells.
struct LoadCells {
  double width = 0;
  double height = 22;
  double left = 0;
  double top = 40;
  bool have_text = false;
  size_t label_every = 1;  // of the columns
};

LoadCells lay_out_loads(const ExpertLoad& load, size_t layers) {
  constexpr double kWholeWidth = 640;
  constexpr double kLargestCell = 44;
  constexpr double kSmallestCell = 5;
  constexpr double kWidthOfText = 30;
  constexpr double kWidthOfLabel = 24;
  LoadCells cells;
  const auto columns = static_cast<double>(load.num_experts);
  cells.width = std::clamp(std::floor(kWholeWidth / columns), kSmallestCell, kLargestCell);
  cells.have_text = cells.width >= kWidthOfText;
  cells.label_every = static_cast<size_t>(std::ceil(kWidthOfLabel / cells.width));
  cells.left = text_width(std::to_string(layers), kPlotFontSize) + 14;
  return cells;
}

std::string load_labels(const ExpertLoad& load, size_t layers, const LoadCells& cells) {
  std::string shapes = svg_text({0, 13}, "layer \u2193   expert \u2192", TextAnchor::kStart, "label");
  for (size_t layer = 0; layer < layers; ++layer) {
    const double y = cells.top + cells.height * (static_cast<double>(layer) + 0.5) + 4.5;
    shapes += svg_text({cells.left - 6, y}, std::to_string(layer + 1), TextAnchor::kEnd);
  }
  for (size_t expert = 0; expert < static_cast<size_t>(load.num_experts); expert += cells.label_every) {
    const double x = cells.left + cells.width * (static_cast<double>(expert) + 0.5);
    shapes += svg_text({x, cells.top - 6}, std::to_string(expert + 1), TextAnchor::kMiddle);
  }
  return shapes;
}

std::string load_text(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(value < 9.995 ? 2 : 1) << value;
  return text.str();
}

std::string load_cells(const ExpertLoad& load, const LoadCells& cells) {
  constexpr double kTextTurnsAt = 0.66;  // both text colours have the same contrast with this cell
  // An even load is light enough to tell larger ones from it, and more than twice of it is the darkest.
  constexpr double kDarkest = 2;
  const auto experts = static_cast<size_t>(load.num_experts);
  std::string shapes;
  for (size_t i = 0; i < load.loads.size(); ++i) {
    const size_t layer = i / experts;
    const size_t expert = i % experts;
    const double value = load.loads[i];
    const double shade = std::min(value / kDarkest, 1.0);
    const double x = cells.left + cells.width * static_cast<double>(expert);
    const double y = cells.top + cells.height * static_cast<double>(layer);
    const std::string tip = "layer " + std::to_string(layer + 1) + ", expert " + std::to_string(expert + 1) +
                            ": " + short_number(value, 3) + " times an even share";
    shapes += svg_rectangle({x, y, cells.width, cells.height}, "heat", tip,
                            " fill-opacity=\"" + svg_number(shade) + "\"");
    if (!cells.have_text) continue;
    shapes += svg_text({x + cells.width / 2, y + cells.height / 2 + 4}, load_text(value), TextAnchor::kMiddle,
                       shade > kTextTurnsAt ? "on-heat" : "count", " style=\"font-size:11px\"");
  }
  return shapes;
}

}  // namespace

std::string expert_load_figure(const ExpertLoad& load) {
  check_loads(load);
  const size_t layers = load.loads.size() / static_cast<size_t>(load.num_experts);
  const LoadCells cells = lay_out_loads(load, layers);
  const double width = cells.width * static_cast<double>(load.num_experts);
  const double height = cells.height * static_cast<double>(layers);
  const auto [least, most] = std::minmax_element(load.loads.begin(), load.loads.end());
  constexpr double kLegible = 0.7;  // share of the natural size, on narrow screens
  // The text in the corner may be wider than a few cells.
  const double whole_width = std::max(cells.left + width + 8, 150.0);
  return plot_figure({.caption = "Load by expert",
                      .summary = "Load of " + std::to_string(load.num_experts) + " experts in " +
                                 std::to_string(layers) + " layers: from " + short_number(*least, 2) +
                                 " to " + short_number(*most, 2) + " times an even share",
                      .width = whole_width,
                      .height = cells.top + height + 4,
                      .shapes = svg_rectangle({cells.left, cells.top, width, height}, "matrix") +
                                load_labels(load, layers, cells) + load_cells(load, cells),
                      .grows = false,
                      .narrowest = whole_width * kLegible});
}

void add_expert_load(const RunRecord& record, HtmlPage& page) {
  if (!record.expert_load) return;
  page.heading("Experts");
  page.paragraph(record.expert_load->when +
                 ": tokens that chose an expert, as a multiple of an even share. Dropped tokens count.");
  page.figures({expert_load_figure(*record.expert_load)});
}

}  // namespace lockstep
