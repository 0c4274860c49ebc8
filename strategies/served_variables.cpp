#include "lockstep/strategies/served_variables.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

/// The older of two reads of the same rows' shards; 0 is also that of a shard of which nothing was read.
void keep_older(std::vector<uint64_t>& versions, const std::vector<uint64_t>& read) {
  versions.resize(read.size());
  for (size_t i = 0; i < read.size(); ++i) {
    if (versions[i] == 0 || (read[i] != 0 && read[i] < versions[i])) versions[i] = read[i];
  }
}

}  // namespace

ParameterClient::CreateSummary ServedVariables::add(const NewVariable& added, bool creates) {
  MutexLock lock(mutex_);
  const at::NoGradGuard no_grad;
  const auto& first = added.replicas.front();
  for (const auto& parameter : added.replicas) {
    if (places_.contains(parameter.unsafeGetTensorImpl()))
      throw InvalidArgument(c10::str("[ParameterServerStrategy] expected a parameter in one optimizer, but '",
                                     added.name, "' is in another one already"));
  }
  Variable variable{.number = client_.add_variable(added.name, first.sizes().vec(), first.scalar_type()),
                    .name = added.name,
                    .is_table = added.initial.has_value()};
  for (const auto& parameter : added.replicas) {
    variable.replicas.emplace_back(parameter.getIntrusivePtr());
    places_[parameter.unsafeGetTensorImpl()] = variables_.size();
  }
  variables_.push_back(variable);
  if (!creates) return {};
  if (added.initial) return client_.create(variable.number, *added.initial, added.rule);
  return client_.create(variable.number, first.detach().cpu().contiguous(), added.rule);
}

ServedVariables::Variable& ServedVariables::variable_of(const at::Tensor& parameter) {
  const auto found = places_.find(parameter.unsafeGetTensorImpl());
  if (found == places_.end())
    throw InvalidArgument(
        c10::str("[ParameterServerStrategy] expected a parameter of an optimizer made in "
                 "scope, but got another one of shape ",
                 parameter.sizes()));
  return variables_[found->second];
}

void ServedVariables::refresh() {
  MutexLock lock(mutex_);
  const at::NoGradGuard no_grad;
  std::vector<ParameterClient::Wanted> wanted;
  std::vector<Variable*> refreshed;
  for (auto& variable : variables_) {
    variable.versions.clear();
    const bool is_in_use = std::any_of(variable.replicas.begin(), variable.replicas.end(),
                                       [](const auto& weak) { return !weak.expired(); });
    if (variable.is_table || !is_in_use) continue;
    wanted.push_back({.variable = variable.number, .rows = {}});
    refreshed.push_back(&variable);
  }
  if (wanted.empty()) return;
  auto pulled = client_.pull(wanted);
  for (size_t i = 0; i < pulled.size(); ++i) {
    auto& variable = *refreshed[i];
    variable.versions = std::move(pulled[i].versions);
    for (const auto& weak : variable.replicas) {
      if (auto parameter = weak.lock()) at::Tensor(std::move(parameter)).copy_(pulled[i].values);
    }
  }
}

at::Tensor ServedVariables::read_rows(const at::Tensor& parameter, const at::Tensor& rows) {
  MutexLock lock(mutex_);
  auto& variable = variable_of(parameter);
  auto pulled = client_.pull({{.variable = variable.number, .rows = rows}});
  keep_older(variable.versions, pulled[0].versions);
  return pulled[0].values;
}

void ServedVariables::take_gradients(const torch::optim::Optimizer& optimizer) {
  MutexLock lock(mutex_);
  const at::NoGradGuard no_grad;
  for (const auto& group : optimizer.param_groups()) {
    const double lr = group.options().get_lr();
    for (const auto& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      const auto& variable = variable_of(parameter);
      if (std::any_of(gradients_.begin(), gradients_.end(),
                      [&](const auto& taken) { return taken.variable == variable.number; }))
        throw InvalidArgument(
            c10::str("[ParameterServerStrategy] expected each optimizer to apply its "
                     "gradients once, but '",
                     variable.name, "' has two: the servers make one step of them"));
      if (variable.versions.empty())
        throw InvalidArgument(
            c10::str("[ParameterServerStrategy] expected a gradient by values that the "
                     "servers gave for this run, but '",
                     variable.name, "' has one without"));
      ParameterClient::Gradient taken{.variable = variable.number, .versions = variable.versions, .lr = lr};
      if (gradient.is_sparse()) {
        const auto coalesced = gradient.coalesce();
        taken.rows = coalesced.indices().squeeze(0).cpu().contiguous();
        taken.values = coalesced.values()
                           .to(at::kCPU, coalesced.scalar_type(), /*non_blocking=*/false,
                               /*copy=*/true)
                           .contiguous();
      } else {
        taken.values = gradient.detach()
                           .to(at::kCPU, gradient.scalar_type(), /*non_blocking=*/false,
                               /*copy=*/true)
                           .contiguous();
      }
      gradients_.push_back(std::move(taken));
    }
  }
}

bool ServedVariables::has_gradients() const {
  MutexLock lock(mutex_);
  return !gradients_.empty();
}

void ServedVariables::forget_gradients() {
  MutexLock lock(mutex_);
  gradients_.clear();
}

ParameterClient::PushSummary ServedVariables::push(const PushId& id) {
  MutexLock lock(mutex_);
  return client_.push(id, std::exchange(gradients_, {}));
}

void ServedVariables::contribute(uint64_t step, uint32_t slot) {
  MutexLock lock(mutex_);
  client_.contribute(step, slot, std::exchange(gradients_, {}));
}

std::vector<uint32_t> ServedVariables::commit(uint64_t step, uint32_t num_slots) {
  MutexLock lock(mutex_);
  return client_.commit(step, num_slots);
}

void ServedVariables::forget_before(uint64_t closure) {
  MutexLock lock(mutex_);
  client_.forget_before(closure);
}

void ServedVariables::end_servers() {
  MutexLock lock(mutex_);
  client_.end_servers();
}

int64_t ServedVariables::num_reconnects() const {
  MutexLock lock(mutex_);
  return client_.num_reconnects();
}

}  // namespace lockstep
