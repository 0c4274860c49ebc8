#include "lockstep/parameter_server/shards/parameter_shard.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include "lockstep/parameter_server/shards/huge_pages.h"
#include "lockstep/parameter_server/shards/row_kernels.h"
#include "lockstep/parameter_server/shards/row_numbers.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

ShardOptimizer make_optimizer(const std::string& name, const at::Tensor& values, const UpdateRule& rule,
                              bool grows) {
  try {
    if (!values.defined()) throw InvalidArgument("expected values, but got none");
    if (grows && values.dim() == 0) throw InvalidArgument("expected rows, but got a scalar");
    if (grows) return {values.detach().narrow(0, 0, 0).clone(), rule};
    if (!values.is_cpu()) return {values, rule};  // the optimizer refuses them
    auto own = empty_for_random_access(values);
    own.copy_(values.detach());
    return {std::move(own), rule};
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(c10::str(name, ": ", error.what()));
  }
}

bool is_alike(const at::Tensor& one, const at::Tensor& other) {
  return one.defined() && one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() &&
         one.layout() == other.layout() && one.is_cpu();
}

}  // namespace

ParameterShard::ParameterShard(std::string name, const at::Tensor& values, const UpdateRule& rule,
                               const std::optional<FilteredRows>& filtered,
                               const std::optional<RowGrowth>& growth, const std::shared_ptr<RowDisk>& disk)
    : name_(std::move(name)),
      num_rows_(growth && filtered                     ? filtered->rows.size()
                : values.defined() && values.dim() > 0 ? values.size(0)
                                                       : 1),
      rule_(rule),
      filtered_(filtered),
      growth_(growth),
      optimizer_(make_optimizer(name_, values, rule, growth.has_value())) {
  if (growth_) {
    if (!filtered_) refuse("expected a row filter for a table that grows, but got none");
    try {
      growing_.emplace(*filtered_, *growth_, optimizer_.values(), rule_, disk);
    } catch (const InvalidArgument& error) {
      refuse(error.what());
    }
    return;
  }
  if (!filtered_) return;
  if (values.dim() == 0 || filtered_->rows.size() != num_rows_)
    refuse("expected a filter of ", num_rows_, " rows, but got one of ", filtered_->rows.size());
  try {
    admission_.emplace(*filtered_);
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
}

template <typename... Parts>
void ParameterShard::refuse(const Parts&... parts) const {
  throw InvalidArgument(c10::str(name_, ": ", parts...));
}

void ParameterShard::check_alike(at::IntArrayRef sizes, at::ScalarType dtype, const UpdateRule& rule,
                                 const std::optional<FilteredRows>& filtered,
                                 const std::optional<RowGrowth>& growth) const {
  MutexLock lock(mutex_);
  const auto& own = optimizer_.values();
  auto own_sizes = own.sizes().vec();
  if (growing_) own_sizes[0] = num_rows_;
  if (sizes != at::IntArrayRef(own_sizes) || dtype != own.scalar_type())
    refuse("expected values of ", own.scalar_type(), " of shape ", at::IntArrayRef(own_sizes),
           ", as it was made with, but got ", dtype, " of shape ", sizes);
  if (rule != rule_) refuse("expected the optimizer that it was made with, but got another");
  if (filtered != filtered_) refuse("expected the row filter that it was made with, but got another");
  if (growth.has_value() != growth_.has_value())
    refuse("expected a table that ", growth_ ? "grows" : "does not grow",
           ", as it was made with, but got one that ", growth ? "does" : "does not");
  if (growth != growth_)
    refuse("expected a limit of ", growth_->max_bytes, " bytes, and ids of ", growth_->num_bits, " bits ",
           growth_->takes_numbered_rows ? "without" : "with", " hashes, as it was made with, but got ",
           growth->max_bytes, " bytes, ", growth->num_bits, " bits ",
           growth->takes_numbered_rows ? "without" : "with", " hashes");
}

ParameterShard::Extent ParameterShard::extent() const {
  MutexLock lock(mutex_);
  if (growing_)
    return {growing_->size(), growing_->bytes(), growing_->rows_in_memory(), growing_->most_bytes(),
            growing_->disk_bytes()};
  auto bytes = static_cast<int64_t>(optimizer_.values().nbytes());
  for (const auto& [name, tensor] : state()) bytes += static_cast<int64_t>(tensor.nbytes());
  return {num_rows_, bytes, num_rows_, bytes, 0};
}

ParameterShard::Pulled ParameterShard::pull() const {
  MutexLock lock(mutex_);
  if (growing_) refuse("expected numbers of rows, as it grows, but got none");
  auto copy = optimizer_.values().clone();
  if (admission_) show_expired_anew(at::arange(num_rows_), copy);
  return {std::move(copy), version_};
}

ParameterShard::Pulled ParameterShard::pull_rows(const at::Tensor& rows) const {
  const auto asked = row_numbers(rows, num_rows_, name_ + ": ");
  MutexLock lock(mutex_);
  if (growing_) return {growing_->read(asked), version_};
  const auto& values = optimizer_.values();
  auto sizes = values.dim() == 0 ? std::vector<int64_t>{1} : values.sizes().vec();
  const int64_t columns = num_rows_ == 0 ? 0 : values.numel() / num_rows_;
  sizes[0] = rows.numel();
  auto copies = at::empty(sizes, values.options());
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "pull_rows", [&] {
    copy_rows(values.const_data_ptr<scalar_t>(), asked, columns, copies.data_ptr<scalar_t>());
  });
  if (admission_) show_expired_anew(rows, copies);
  return {std::move(copies), version_};
}

/// Shows the initial values of expired rows, which only their next update resets.
void ParameterShard::show_expired_anew(const at::Tensor& rows, const at::Tensor& copies) const {
  const auto* row = rows.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows.numel(); ++i)
    if (admission_->is_expired(row[i], version_))
      copies.narrow(0, i, 1).copy_(admission_->initial_row(row[i], copies));
}

void ParameterShard::step_admitted(const at::Tensor& rows, const at::Tensor& gradients, double lr) {
  const auto noted = admission_->note(optimizer_.check_rows(rows, gradients, lr), version_ + 1);
  for (const int64_t row : noted.expired)
    optimizer_.renew_row(row, admission_->initial_row(row, optimizer_.values()));
  if (!noted.admitted.defined()) return optimizer_.step_rows(rows, gradients, lr);
  optimizer_.step_rows(rows.index_select(0, noted.admitted), gradients.index_select(0, noted.admitted), lr);
}

std::vector<std::pair<std::string, at::Tensor>> ParameterShard::state() const {
  auto named = optimizer_.state();
  if (!admission_) return named;
  for (auto& more : admission_->state()) named.push_back(std::move(more));
  return named;
}

template <typename Step>
PushResult ParameterShard::apply(const PushedStep& step, const Step& change) {
  const at::NoGradGuard without_gradient;
  MutexLock lock(mutex_);
  if (pushes_.has(step.id)) return {PushOutcome::kRepeated, version_, 0};
  if (step.version > version_) return {PushOutcome::kOutdated, version_, 0};
  try {
    change();
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
  pushes_.add(step.id);
  const uint64_t staleness = version_ - step.version;
  return {PushOutcome::kApplied, ++version_, staleness};
}

PushResult ParameterShard::push(const at::Tensor& gradient, const PushedStep& step) {
  return apply(step, [&]() LOCKSTEP_REQUIRES(mutex_) {
    if (admission_) throw InvalidArgument("expected a gradient by rows, as it has a row filter");
    if (growing_) throw InvalidArgument("expected a gradient by rows, as it grows");
    optimizer_.step(gradient, step.lr);
  });
}

PushResult ParameterShard::push_rows(const at::Tensor& rows, const at::Tensor& gradients,
                                     const PushedStep& step) {
  return apply(step, [&]() LOCKSTEP_REQUIRES(mutex_) {
    if (growing_) return growing_->step(optimizer_, rows, gradients, step.lr, version_ + 1);
    admission_ ? step_admitted(rows, gradients, step.lr) : optimizer_.step_rows(rows, gradients, step.lr);
  });
}

void ParameterShard::forget_before(uint64_t closure) {
  MutexLock lock(mutex_);
  pushes_.forget_before(closure);
}

ParameterShard::Saved ParameterShard::save() const {
  MutexLock lock(mutex_);
  if (growing_) {
    auto [values, state, rows] = growing_->save();
    const auto [name, count] = optimizer_.state().front();
    state.insert(state.begin(), {name, count.clone()});
    return {std::move(values), std::move(state), version_, pushes_.saved(), std::move(rows)};
  }
  Saved saved{optimizer_.values().clone(), state(), version_, pushes_.saved(), nullptr};
  for (auto& [name, tensor] : saved.optimizer) tensor = tensor.clone();
  return saved;
}

void ParameterShard::restore_growing(const Saved& saved) {
  const auto [name, count] = optimizer_.state().front();
  if (saved.optimizer.empty() || saved.optimizer.front().first != name ||
      !is_alike(saved.optimizer.front().second, count))
    refuse("expected the optimizer's ", name, " first, but got another part");
  try {
    growing_->restore({saved.values, saved.optimizer, saved.rows}, saved.version);
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
  count.copy_(saved.optimizer.front().second);
}

void ParameterShard::restore(const Saved& saved) {
  const at::NoGradGuard without_gradient;
  auto pushes = AppliedPushes::restored(saved.pushes);
  MutexLock lock(mutex_);
  if (growing_) {
    restore_growing(saved);
    version_ = saved.version;
    pushes_ = std::move(pushes);
    return;
  }
  const auto state = this->state();
  const auto check = [&](const std::string& part, const at::Tensor& given, const at::Tensor& own) {
    if (!is_alike(given, own))
      refuse(part, ": expected ", own.toString(), " of shape ", own.sizes(), ", but got ",
             given.defined() ? c10::str(given.toString(), " of shape ", given.sizes()) : "none");
  };
  check("values", saved.values, optimizer_.values());
  for (size_t i = 0; i < state.size(); ++i) {
    const auto& [name, own] = state[i];
    if (i >= saved.optimizer.size() || saved.optimizer[i].first != name)
      refuse("expected ", name, ", but got ",
             i < saved.optimizer.size() ? saved.optimizer[i].first : "nothing more");
    check(name, saved.optimizer[i].second, own);
  }
  if (saved.optimizer.size() > state.size())
    refuse("expected nothing more, but got ", saved.optimizer[state.size()].first);
  optimizer_.values().copy_(saved.values);
  for (size_t i = 0; i < state.size(); ++i) state[i].second.copy_(saved.optimizer[i].second);
  version_ = saved.version;
  pushes_ = std::move(pushes);
}

}  // namespace lockstep
