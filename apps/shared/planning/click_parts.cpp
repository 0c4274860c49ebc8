#include "lockstep/apps/shared/planning/click_parts.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace lockstep::apps {
namespace {

constexpr double kIdBytes = 8;
constexpr double kFloatBytes = 4;

double as_double(int64_t number) {
  return static_cast<double>(number);
}

/// Dense layers with a ReLU behind each, or behind each but the last: numbers of an example.
class DenseLayers {
 public:
  DenseLayers(int64_t inputs, std::vector<int64_t> units, bool has_last_relu)
      : units_(std::move(units)), has_last_relu_(has_last_relu) {
    units_.insert(units_.begin(), inputs);
  }

  double elements() const {
    double sum = 0;
    for (size_t i = 1; i < units_.size(); ++i) sum += weights(i) + out(i);
    return sum;
  }
  double largest_tensor() const {
    double most = 0;
    for (size_t i = 1; i < units_.size(); ++i) most = std::max(most, weights(i));
    return most;
  }
  double products() const {
    double sum = 0;
    for (size_t i = 1; i < units_.size(); ++i) sum += weights(i);
    return sum;
  }
  double first_products() const { return weights(1); }

  /// Returns the numbers that backward keeps: the results of ReLUs, which are the inputs of the layers behind
  /// them.
  double kept() const {
    double sum = 0;
    for (size_t i = 1; i < units_.size(); ++i)
      if (has_relu(i)) sum += out(i);
    return sum;
  }
  /// Returns the numbers that go through memory: each layer writes, and ReLU reads and writes once more.
  double moved() const { return 3 * std::accumulate(units_.begin() + 1, units_.end(), 0.0); }
  double operators() const { return as_double(static_cast<int64_t>(units_.size()) - 1) * 2; }

  /// Follows backward from the last layer to the first, with `below` kept besides these layers' results and
  /// freed later, and returns the most numbers that are there at a time. `needs_input`: whether the first
  /// layer's input gets a gradient.
  double most_backward(double below, bool needs_input) const {
    double live = below + kept(), most = 0;
    for (size_t i = units_.size() - 1; i >= 1; --i) {
      double gradient = out(i);
      if (has_relu(i)) {
        most = std::max(most, live + 2 * gradient);
        live -= out(i);
      }
      const double of_input = i > 1 || needs_input ? in(i) : 0;
      most = std::max(most, live + gradient + of_input);
    }
    return most;
  }

 private:
  bool has_relu(size_t layer) const { return has_last_relu_ || layer + 1 < units_.size(); }
  double in(size_t layer) const { return as_double(units_[layer - 1]); }
  double out(size_t layer) const { return as_double(units_[layer]); }
  double weights(size_t layer) const { return in(layer)*out(layer); }

  std::vector<int64_t> units_;  // the inputs, and then those of each layer
  bool has_last_relu_;
};

class ClickParts {
 public:
  explicit ClickParts(const PlannedClickModel& model)
      : model_(model),
        bytes_(as_double(parameter_bytes(model.numbers))),
        width_(as_double(model.embedding_dim)),
        numbers_(as_double(model.num_numbers)),
        categories_(as_double(model.num_categories)) {}

  PlannedPart network() const {
    PlannedPart part = model_.is_dlrm ? dlrm() : wide_and_deep();
    part.name = "network";
    // Numbers in the dtype of the parameters, which the first layer keeps.
    if (bytes_ != kFloatBytes) part.saved.whole += bytes_ * numbers_;
    // Each lookup keeps the rows of its ids.
    part.saved.whole += kIdBytes * categories_;
    // The looked-up rows are there as long as forward goes.
    part.forward_extra.whole += bytes_ * categories_ * width_;
    return part;
  }

 private:
  PlannedPart dlrm() const {
    auto bottom_units = model_.bottom_units;
    bottom_units.push_back(model_.embedding_dim);
    const DenseLayers bottom(model_.num_numbers, bottom_units, true);
    const double vectors = categories_ + 1;
    const double pairs = vectors * (vectors - 1) / 2;
    auto top_units = model_.top_units;
    top_units.push_back(1);
    const DenseLayers top(model_.embedding_dim + static_cast<int64_t>(pairs), top_units, false);
    const double all = vectors * width_;       // all vectors of an example
    const double squares = vectors * vectors;  // their products
    const double features = width_ + pairs;    // the input of `top`
    const double saved = bottom.kept() + all + features + top.kept();

    PlannedPart part;
    part.elements.whole = bottom.elements() + top.elements();
    part.largest_tensor.whole = std::max(bottom.largest_tensor(), top.largest_tensor());
    part.input.whole = bytes_ * all;  // the gradient of the rows, with that of the numbers beside it
    part.saved.whole = bytes_ * saved;
    // All products, before those of different vectors are taken out; these are there to the end.
    part.forward_extra.whole = bytes_ * std::max(pairs + 1, squares + pairs - features - top.kept());
    // The products' gradients with those of both factors.
    const double of_products = bottom.kept() + all + width_ + pairs + squares + 2 * all;
    part.backward_extra.whole =
        bytes_ * (std::max(top.most_backward(bottom.kept() + all + features, true), of_products) - saved);
    const double products = bottom.products() + top.products() + squares * width_;
    part.forward.flops.whole = 2 * products;
    part.backward.flops.whole = 4 * products - 2 * bottom.first_products();
    part.forward.bytes.whole = bytes_ * (bottom.moved() + top.moved() + 2 * all + 2 * squares + 4 * features);
    part.backward.bytes.whole = bytes_ * (2 * (bottom.moved() + top.moved()) + 4 * all + 3 * squares);
    part.forward.operators = bottom.operators() + top.operators() + 12;
    part.backward.operators = 2 * part.forward.operators;
    return part;
  }

  PlannedPart wide_and_deep() const {
    auto units = model_.hidden_units;
    units.push_back(1);
    const int64_t inputs = model_.num_numbers + model_.num_categories * model_.embedding_dim;
    const DenseLayers deep(inputs, units, false);
    const double saved = as_double(inputs) + deep.kept();
    PlannedPart part;
    part.elements.whole = deep.elements() + numbers_ + 1;
    part.largest_tensor.whole = deep.largest_tensor();
    part.input.whole = bytes_ * as_double(inputs);
    part.saved.whole = bytes_ * saved;
    // The sums of weights, the linear layer's result and the deep one's.
    part.forward_extra.whole = bytes_ * 3;
    part.backward_extra.whole = bytes_ * (deep.most_backward(as_double(inputs), true) - saved);
    // The weights' lookup keeps the rows of its ids, and the example that each belongs to.
    part.saved.whole += 2 * kIdBytes * categories_;
    const double products = deep.products() + numbers_;
    part.forward.flops.whole = 2 * products;
    part.backward.flops.whole = 4 * products - 2 * numbers_;
    part.forward.bytes.whole = bytes_ * (deep.moved() + 2 * as_double(inputs));
    part.backward.bytes.whole = bytes_ * (2 * deep.moved() + 2 * as_double(inputs));
    part.forward.operators = deep.operators() + 12;
    part.backward.operators = 2 * part.forward.operators;
    return part;
  }

  const PlannedClickModel& model_;
  double bytes_, width_, numbers_, categories_;
};

}  // namespace

PlannedModel planned_clicks(const PlannedClickModel& model) {
  PlannedModel planned{.kinds = {ClickParts(model).network()}, .parts = {0}};
  planned.input_bytes = kFloatBytes * as_double(model.num_numbers + 1) +  // with the label
                        kIdBytes * as_double(model.num_categories);
  const auto rows = as_double(model.table_rows);
  const auto categories = as_double(model.num_categories);
  planned.tables.push_back({rows, as_double(model.embedding_dim), categories});
  if (!model.is_dlrm) planned.tables.push_back({rows, 1, categories});
  return planned;
}

}  // namespace lockstep::apps
