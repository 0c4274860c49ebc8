#pragma once

#include <string>

#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// A confusion matrix as inline SVG for an HtmlPage: a row a true class, a column a predicted one. A cell is
/// the darker, the larger its share of its row is (by the square root, so that rare confusions show), and has
/// its count written in it where there is room. Returns a <figure>.
///
/// Throws InvalidArgument where the counts are not the square of the classes, or one is negative.
std::string confusion_figure(const ConfusionCounts& matrix);

/// A pair of classes that were confused.
struct Confusion {
  size_t true_class = 0;
  size_t predicted_class = 0;
  int64_t count = 0;
};

/// The pairs with the most examples, at most `longest` of them, the most frequent first. Throws as above.
std::vector<Confusion> most_frequent_confusions(const ConfusionCounts& matrix, size_t longest);

}  // namespace lockstep
