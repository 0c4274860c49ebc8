#pragma once

#include <string>

#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// Returns a confusion matrix as a <figure> with inline SVG for an HtmlPage: one row per true class, one
/// column per predicted class. A cell is darker the larger its share of its row (by the square root, so that
/// rare confusions show). It shows its count if there is room.
///
/// Throws InvalidArgument if the number of counts is not the square of the number of classes, or if a count
/// is negative.
std::string confusion_figure(const ConfusionCounts& matrix);

/// A pair of classes that were confused.
struct Confusion {
  size_t true_class = 0;
  size_t predicted_class = 0;
  int64_t count = 0;
};

/// Returns the pairs with the most examples, at most `longest` of them, the most frequent first. Throws as
/// confusion_figure() does.
std::vector<Confusion> most_frequent_confusions(const ConfusionCounts& matrix, size_t longest);

}  // namespace lockstep
