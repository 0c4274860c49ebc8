#pragma once

#include <torch/types.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/metrics/metric.h"

namespace lockstep {

/// A metric of a model's outputs and the targets, such as CategoricalAccuracy. Its value is a number or a
/// tensor.
template <typename M>
concept OutputMetric = Metric<M> && std::copyable<M> &&
    requires(M& metric, const M& constant, const torch::Tensor& tensor, const MetricState& state) {
  metric.update(tensor, tensor);
  requires std::is_arithmetic_v<decltype(constant.value(state))> ||
      std::same_as<decltype(constant.value(state)), torch::Tensor>;
};

/// Holds any OutputMetric.
///
/// Example:
///
///     AnyMetric metric = CategoricalAccuracy();
///     metric.update(logits, targets);
///     double accuracy = metric.value(merge_states(metric.merge(), {metric.state()})).item<double>();
class AnyMetric {
 public:
  template <OutputMetric M>
  AnyMetric(M metric)
      : metric_(std::make_unique<Holder<M>>(std::move(metric))) {}  // NOLINT: implicit, as for std::function
  AnyMetric(const AnyMetric& other) : metric_(other.metric_->clone()) {}
  AnyMetric& operator=(const AnyMetric& other) {
    metric_ = other.metric_->clone();
    return *this;
  }
  AnyMetric(AnyMetric&&) noexcept = default;
  AnyMetric& operator=(AnyMetric&&) noexcept = default;
  ~AnyMetric() = default;

  void update(const torch::Tensor& outputs, const torch::Tensor& targets) {
    metric_->update(outputs, targets);
  }
  void reset() { metric_->reset(); }
  MetricState state() const { return metric_->state(); }
  StateMerge merge() const { return metric_->merge(); }
  bool is_restorable() const { return metric_->is_restorable(); }
  /// Throws InvalidArgument if the metric is not restorable.
  void restore(MetricState state) { metric_->restore(std::move(state)); }
  /// Returns a float64 scalar if the value is a number, else the value itself.
  torch::Tensor value(const MetricState& state) const { return metric_->value(state); }
  /// Returns whether a CUDA graph can capture its updates, which requires for_each_tensor().
  bool is_capturable() const { return metric_->is_capturable(); }
  void for_each_tensor(const std::function<void(const torch::Tensor&)>& visit) const {
    metric_->for_each_tensor(visit);
  }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual std::unique_ptr<Interface> clone() const = 0;
    virtual void update(const torch::Tensor& outputs, const torch::Tensor& targets) = 0;
    virtual void reset() = 0;
    virtual MetricState state() const = 0;
    virtual StateMerge merge() const = 0;
    virtual bool is_restorable() const = 0;
    virtual void restore(MetricState state) = 0;
    virtual torch::Tensor value(const MetricState& state) const = 0;
    virtual bool is_capturable() const = 0;
    virtual void for_each_tensor(const std::function<void(const torch::Tensor&)>& visit) const = 0;
  };

  template <typename M>
  struct Holder : Interface {
    explicit Holder(M held) : metric(std::move(held)) {}
    std::unique_ptr<Interface> clone() const override { return std::make_unique<Holder>(metric); }
    void update(const torch::Tensor& outputs, const torch::Tensor& targets) override {
      metric.update(outputs, targets);
    }
    void reset() override { metric.reset(); }
    MetricState state() const override { return metric.state(); }
    StateMerge merge() const override { return M::kMerge; }
    bool is_restorable() const override { return RestorableMetric<M>; }
    void restore(MetricState state) override {
      if constexpr (RestorableMetric<M>) {
        metric.restore(std::move(state));
      } else {
        throw InvalidArgument("[metric] expected one with restore(), but got one without");
      }
    }
    torch::Tensor value(const MetricState& state) const override {
      if constexpr (std::is_arithmetic_v<decltype(metric.value(state))>) {
        return torch::scalar_tensor(static_cast<double>(metric.value(state)), torch::kDouble);
      } else {
        return metric.value(state);
      }
    }
    static constexpr bool kIsCapturable = requires(const M& m, void (*visit)(const torch::Tensor&)) {
      m.for_each_tensor(visit);
    };
    bool is_capturable() const override { return kIsCapturable; }
    void for_each_tensor(const std::function<void(const torch::Tensor&)>& visit) const override {
      if constexpr (kIsCapturable) metric.for_each_tensor(visit);
    }
    M metric;
  };

  std::unique_ptr<Interface> metric_;
};

/// A metric with its name in the logs.
struct NamedMetric {
  std::string name;
  AnyMetric metric;
};

/// Metrics of outputs and targets, by name: `{{"accuracy", CategoricalAccuracy()}, {"auc", Auc()}}`. Copies
/// of a metric that was never updated share nothing.
using MetricList = std::vector<NamedMetric>;

/// Returns the value of each metric over all replicas: those of this process if `strategy` is null, else
/// those of all workers, which is a collective. `lists` has one entry for each local replica, with the same
/// metrics. Throws as result() does.
std::vector<std::pair<std::string, torch::Tensor>> metric_results(
    const std::vector<const MetricList*>& lists, const PerReplica<MetricState>::Devices& devices,
    Strategy* strategy);

}  // namespace lockstep
