#include "lockstep/runtime/precision/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/internal/device_traits.h"
#include "lockstep/runtime/precision/skippable_step.h"

namespace lockstep {
namespace {

template <typename Value>
void require(bool holds, const char* name, const char* expected, Value given) {
  if (holds) return;
  throw InvalidArgument(c10::str("[GradScaler] expected ", name, " to be ", expected, ", but got ", given));
}

void require_scale(const char* name, double scale) {
  require(scale > 0 && scale <= std::numeric_limits<float>::max(), name, "positive and finite in float32",
          scale);
}

/// Gradients of one device and dtype, for one call of the operator that unscales.
struct GradientList {
  c10::Device device;
  at::ScalarType dtype;
  std::vector<at::Tensor> gradients;
};

std::vector<GradientList> gradients_of(const torch::optim::Optimizer& optimizer) {
  std::vector<GradientList> lists;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.scalar_type() == at::kHalf) {
        throw InvalidArgument(c10::str(
            "[GradScaler] expected gradients of float32 parameters, but got one of float16, of shape ",
            gradient.sizes(), ": autocast leaves parameters in float32"));
      }
      const at::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
      const auto list = std::find_if(lists.begin(), lists.end(), [&](const GradientList& known) {
        return known.device == values.device() && known.dtype == values.scalar_type();
      });
      if (list != lists.end()) {
        list->gradients.push_back(values);
      } else {
        lists.push_back({values.device(), values.scalar_type(), {values}});
      }
    }
  }
  return lists;
}

}  // namespace

GradScaler::GradScaler(c10::Device device, const GradScalerOptions& options) : options_(options) {
  require_scale("init_scale", options.init_scale);
  require(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor",
          "more than 1 and finite", options.growth_factor);
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", "in (0, 1)",
          options.backoff_factor);
  require(options.growth_interval >= 1 && options.growth_interval <= std::numeric_limits<int32_t>::max(),
          "growth_interval", "at least 1 and an int32", options.growth_interval);
  scale_ = at::full({}, options.init_scale, at::TensorOptions(at::kFloat).device(device));
  growth_tracker_ = at::zeros({}, at::TensorOptions(at::kInt).device(device));
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  // Not a copy: if update() comes before this loss's backward, autograd refuses the changed scale.
  return options_.enabled ? loss.mul(scale_.to(loss.device())) : loss;
}

GradScaler::Record* GradScaler::find(const torch::optim::Optimizer& optimizer) {
  const auto record = std::find_if(records_.begin(), records_.end(),
                                   [&](const Record& known) { return known.optimizer == &optimizer; });
  return record == records_.end() ? nullptr : &*record;
}

at::Tensor GradScaler::unscale_gradients(const torch::optim::Optimizer& optimizer) const {
  const at::NoGradGuard no_grad;
  // A float32 reciprocal may be a bit off if the compiler trades accuracy for speed.
  const at::Tensor inverse = scale_.to(widest_float(scale_.device())).reciprocal().to(at::kFloat);
  at::Tensor any_found = at::zeros({}, scale_.options());
  for (const auto& list : gradients_of(optimizer)) {
    at::Tensor found_inf = at::zeros({}, scale_.options().device(list.device));
    at::_amp_foreach_non_finite_check_and_unscale_(list.gradients, found_inf, inverse.to(list.device));
    any_found = at::maximum(any_found, found_inf.to(any_found.device()));
  }
  return any_found;
}

void GradScaler::unscale(const torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  if (find(optimizer) != nullptr) {
    throw InvalidArgument(
        "[GradScaler] expected gradients that are still scaled, but this optimizer's were unscaled since the "
        "last update(): call unscale(optimizer) at most once a step, and scaler.update() at its end");
  }
  records_.push_back({&optimizer, unscale_gradients(optimizer), /*has_stepped=*/false});
}

void GradScaler::step(torch::optim::Optimizer& optimizer, const std::function<void()>& change_gradients,
                      const std::function<void()>& take_step,
                      const std::function<void(const at::Tensor& found_inf)>& agree) {
  const auto step_now = [&] { take_step ? take_step() : static_cast<void>(optimizer.step()); };
  at::Tensor found_inf;
  if (options_.enabled) {
    if (const Record* record = find(optimizer)) {
      if (record->has_stepped) {
        throw InvalidArgument(
            "[GradScaler] expected one step of each optimizer between updates, but this one has stepped "
            "since "
            "the last: call scaler.update() at the end of every step");
      }
      found_inf = record->found_inf;
    } else {
      found_inf = unscale_gradients(optimizer);
    }
    if (agree) agree(found_inf);
  }
  if (change_gradients) change_gradients();
  if (!options_.enabled) return step_now();
  if (auto* skippable = dynamic_cast<SkippableStep*>(&optimizer); skippable != nullptr && !take_step) {
    skippable->step_unless(found_inf);
  } else if (found_inf.item<float>() == 0) {
    step_now();
  }
  // Only now: a step that threw must not record its gradients, which will be made again, as unscaled.
  if (Record* record = find(optimizer)) {
    record->has_stepped = true;
  } else {
    records_.push_back({&optimizer, found_inf, /*has_stepped=*/true});
  }
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (records_.empty()) {
    throw InvalidArgument(
        "[GradScaler] expected apply_gradients(optimizer, {.scaler = &scaler}) before update(), but no "
        "optimizer has taken a step with this scaler since the last update()");
  }
  const at::NoGradGuard no_grad;
  at::Tensor found_inf = records_[0].found_inf;
  for (size_t i = 1; i < records_.size(); ++i) found_inf = at::maximum(found_inf, records_[i].found_inf);
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  records_.clear();
}

double GradScaler::get_scale() const {
  return options_.enabled ? static_cast<double>(scale_.item<float>()) : 1.0;
}

GradScalerState GradScaler::state() const {
  return {.scale = static_cast<double>(scale_.item<float>()), .growth_tracker = growth_tracker_.item<int>()};
}

void GradScaler::load_state(const GradScalerState& state) {
  require_scale("scale", state.scale);
  require(state.growth_tracker >= 0 && state.growth_tracker <= std::numeric_limits<int32_t>::max(),
          "growth_tracker", "at least 0 and an int32", state.growth_tracker);
  const at::NoGradGuard no_grad;
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
  records_.clear();
}

}  // namespace lockstep
