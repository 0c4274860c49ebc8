#include "lockstep/training/reporting/html/internal/heat_map.h"

#include <algorithm>
#include <cmath>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/internal/utf8_text.h"
#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/svg_shapes.h"

namespace lockstep {
namespace {

constexpr size_t kLongestClass = 14;

void check_matrix(const ConfusionCounts& matrix) {
  const size_t num_classes = matrix.class_names.size();
  if (num_classes == 0 || matrix.counts.size() != num_classes * num_classes) {
    throw InvalidArgument("[ConfusionCounts] expected a count for each pair of " +
                          std::to_string(num_classes) + " classes, but got " +
                          std::to_string(matrix.counts.size()));
  }
  for (const int64_t count : matrix.counts) {
    if (count < 0) {
      throw InvalidArgument("[ConfusionCounts] expected counts of 0 or more, but got " +
                            std::to_string(count));
    }
  }
}

/// Position of the cells.
struct Cells {
  double size = 0;
  double left = 0;
  double top = 0;
  double font_size = 0;  ///< of the counts; 0 if they do not fit
  size_t label_every = 1;
  bool are_labels_upright = false;  ///< whether the columns' labels are too wide for a cell

  SvgPoint corner(size_t row, size_t column) const {
    return {left + size * static_cast<double>(column), top + size * static_cast<double>(row)};
  }
};

Cells lay_out(const ConfusionCounts& matrix) {
  constexpr double kWholeWidth = 400;
  constexpr double kLargestCell = 56;
  constexpr double kSmallestCell = 6;
  constexpr double kLargestFont = 13;
  constexpr double kSmallestFont = 8;
  constexpr double kLabelHeight = 15;
  const auto num_classes = static_cast<double>(matrix.class_names.size());
  Cells cells;
  cells.size = std::clamp(std::floor(kWholeWidth / num_classes), kSmallestCell, kLargestCell);
  cells.label_every = static_cast<size_t>(std::ceil(kLabelHeight / cells.size));

  double widest_name = 0;
  for (const auto& name : matrix.class_names) {
    widest_name =
        std::max(widest_name, text_width(shortened_in_the_middle(name, kLongestClass), kPlotFontSize));
  }
  cells.are_labels_upright = widest_name > cells.size * static_cast<double>(cells.label_every) - 3;
  cells.left = widest_name + 10;
  cells.top = (cells.are_labels_upright ? widest_name + 8 : kLabelHeight + 4) + kLabelHeight + 8;

  const int64_t largest = *std::max_element(matrix.counts.begin(), matrix.counts.end());
  const double font = (cells.size - 4) / text_width(std::to_string(largest), 1);
  cells.font_size = font < kSmallestFont ? 0 : std::min(font, kLargestFont);
  return cells;
}

std::string class_labels(const ConfusionCounts& matrix, const Cells& cells) {
  std::string shapes = svg_text({0, 13}, "true \u2193   predicted \u2192", TextAnchor::kStart, "label");
  for (size_t i = 0; i < matrix.class_names.size(); i += cells.label_every) {
    const std::string name = shortened_in_the_middle(matrix.class_names[i], kLongestClass);
    const SvgPoint row = cells.corner(i, 0);
    shapes += svg_text({row.x - 6, row.y + cells.size / 2 + 4.5}, name, TextAnchor::kEnd);
    const SvgPoint column = cells.corner(0, i);
    const double middle = column.x + cells.size / 2;
    if (!cells.are_labels_upright) {
      shapes += svg_text({middle, column.y - 6}, name, TextAnchor::kMiddle);
      continue;
    }
    const SvgPoint start{middle + 4.5, column.y - 6};
    const std::string turn =
        " transform=\"rotate(-90 " + svg_number(start.x) + " " + svg_number(start.y) + ")\"";
    shapes += svg_text(start, name, TextAnchor::kStart, "", turn);
  }
  return shapes;
}

std::string matrix_cells(const ConfusionCounts& matrix, const Cells& cells) {
  constexpr double kTextTurnsAt = 0.66;  // both text colours have the same contrast with this cell
  const size_t num_classes = matrix.class_names.size();
  std::string shapes;
  for (size_t row = 0; row < num_classes; ++row) {
    int64_t total = 0;
    for (size_t column = 0; column < num_classes; ++column)
      total += matrix.counts[row * num_classes + column];
    for (size_t column = 0; column < num_classes; ++column) {
      const int64_t count = matrix.counts[row * num_classes + column];
      if (count == 0) continue;
      const double share = static_cast<double>(count) / static_cast<double>(total);
      const double shade = std::sqrt(share);
      const SvgPoint corner = cells.corner(row, column);
      const std::string tip = "true " + matrix.class_names[row] + ", predicted " +
                              matrix.class_names[column] + ": " + grouped_number(count) + " of " +
                              grouped_number(total) + " (" + percent_text(share, 1) + ")";
      shapes += svg_rectangle({corner.x, corner.y, cells.size, cells.size}, "heat", tip,
                              " fill-opacity=\"" + svg_number(shade) + "\"");
      if (cells.font_size == 0) continue;
      shapes +=
          svg_text({corner.x + cells.size / 2, corner.y + cells.size / 2 + cells.font_size * 0.35},
                   std::to_string(count), TextAnchor::kMiddle, shade > kTextTurnsAt ? "on-heat" : "count",
                   " style=\"font-size:" + svg_number(cells.font_size) + "px\"");
    }
  }
  return shapes;
}

}  // namespace

std::string confusion_figure(const ConfusionCounts& matrix) {
  check_matrix(matrix);
  const Cells cells = lay_out(matrix);
  const size_t num_classes = matrix.class_names.size();
  const double side = cells.size * static_cast<double>(num_classes);
  int64_t total = 0;
  int64_t right = 0;
  for (size_t i = 0; i < matrix.counts.size(); ++i) {
    total += matrix.counts[i];
    if (i % (num_classes + 1) == 0) right += matrix.counts[i];
  }
  constexpr double kLegible = 0.7;  // share of the natural size, on narrow screens
  // The text in the corner may be wider than a small matrix.
  const double width = std::max(cells.left + side + 8, 170.0);
  return plot_figure({.caption = "Confusion matrix",
                      .summary = "Confusion matrix of " + std::to_string(num_classes) + " classes: " +
                                 std::to_string(right) + " of " + std::to_string(total) + " right",
                      .width = width,
                      .height = cells.top + side + 4,
                      .shapes = svg_rectangle({cells.left, cells.top, side, side}, "matrix") +
                                class_labels(matrix, cells) + matrix_cells(matrix, cells),
                      .grows = false,
                      .narrowest = width * kLegible});
}

std::vector<Confusion> most_frequent_confusions(const ConfusionCounts& matrix, size_t longest) {
  check_matrix(matrix);
  const size_t num_classes = matrix.class_names.size();
  std::vector<Confusion> confusions;
  for (size_t i = 0; i < matrix.counts.size(); ++i) {
    if (matrix.counts[i] == 0 || i % (num_classes + 1) == 0) continue;
    confusions.push_back(
        {.true_class = i / num_classes, .predicted_class = i % num_classes, .count = matrix.counts[i]});
  }
  std::stable_sort(confusions.begin(), confusions.end(),
                   [](const Confusion& a, const Confusion& b) { return a.count > b.count; });
  confusions.resize(std::min(confusions.size(), longest));
  return confusions;
}

}  // namespace lockstep
