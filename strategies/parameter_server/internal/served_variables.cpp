#include "lockstep/strategies/parameter_server/internal/served_variables.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/searchsorted.h>
#include <c10/util/StringUtil.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/sparse_gradient.h"
#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/runtime/devices/internal/device_traits.h"
#include "lockstep/runtime/devices/pinned_memory.h"
#include "lockstep/strategies/nn/internal/distinct_rows.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Returns the device for which values for all of these belong in pinned memory, if there is one.
std::optional<c10::Device> pinned_device_of(const std::vector<c10::Device>& devices) {
  const auto found = std::find_if(devices.begin(), devices.end(), &copies_from_pinned_memory);
  return found == devices.end() ? std::nullopt : std::optional(*found);
}

/// Returns the values at `indices`, in pinned memory if `pinned`.
at::Tensor values_of_rows(const at::Tensor& values, const at::Tensor& indices, bool pinned) {
  auto sizes = values.sizes().vec();
  sizes[0] = indices.numel();
  auto chosen = at::empty(sizes, values.options().pinned_memory(pinned));
  at::index_select_out(chosen, values, 0, indices);
  return chosen;
}

/// Returns a copy on the CPU. From an accelerator, it is in pinned memory and complete only once the current
/// stream's work is done.
at::Tensor copied_to_host(const at::Tensor& tensor) {
  auto copy =
      at::empty(tensor.sizes(),
                tensor.options().device(at::kCPU).pinned_memory(copies_from_pinned_memory(tensor.device())));
  return copy.copy_(tensor, /*non_blocking=*/true);
}

}  // namespace

std::vector<c10::Device> ServedVariables::Variable::devices() const {
  std::vector<c10::Device> devices;
  for (const auto& weak : replicas) {
    if (const auto parameter = weak.lock()) devices.push_back(parameter->device());
  }
  return devices;
}

/// Values of some variables, by index into `variables_`.
class ServedVariables::Values {
 public:
  std::map<size_t, ParameterClient::Pulled> variables;  // read completely
  std::map<size_t, std::vector<uint64_t>> table_versions;
  std::vector<TableLookups::Lookup> lookups;  // with their values
};

ParameterClient::CreateSummary ServedVariables::add(const NewVariable& added, bool creates) {
  const at::NoGradGuard no_grad;
  const auto& first = added.replicas.front();
  int number = 0;
  {
    MutexLock lock(mutex_);
    for (const auto& parameter : added.replicas) {
      if (indices_.contains(parameter.unsafeGetTensorImpl()))
        throw InvalidArgument(
            c10::str("[ParameterServerStrategy] expected a parameter in one optimizer, but '", added.name,
                     "' is in another one already"));
    }
    {
      MutexLock reading(reader_mutex_);
      number = reader_.add_variable(added.name, first.sizes().vec(), first.scalar_type(), added.growth);
    }
    Variable variable{.number = number, .name = added.name, .is_table = added.initial.has_value()};
    for (const auto& parameter : added.replicas) {
      variable.replicas.emplace_back(parameter.getIntrusivePtr());
      indices_[parameter.unsafeGetTensorImpl()] = variables_.size();
    }
    variables_.push_back(std::move(variable));
  }
  MutexLock writing(writer_mutex_);
  writer_.add_variable(added.name, first.sizes().vec(), first.scalar_type(), added.growth);
  if (!creates) return {};
  if (added.initial) return writer_.create(number, *added.initial, added.rule, added.filter);
  return writer_.create(number, first.detach().cpu().contiguous(), added.rule);
}

size_t ServedVariables::index_of(const at::Tensor& parameter) const {
  const auto found = indices_.find(parameter.unsafeGetTensorImpl());
  if (found == indices_.end())
    throw InvalidArgument(
        c10::str("[ParameterServerStrategy] expected a parameter of an optimizer made in "
                 "scope, but got another one of shape ",
                 parameter.sizes()));
  return found->second;
}

std::vector<ParameterClient::Pulled> ServedVariables::pull(
    const std::vector<ParameterClient::Wanted>& wanted) {
  if (wanted.empty()) return {};
  MutexLock lock(reader_mutex_);
  return reader_.pull(wanted);
}

std::shared_ptr<const ServedVariables::Values> ServedVariables::read_ahead(const TableLookups& lookups) {
  const auto values = std::make_shared<Values>();
  std::vector<ParameterClient::Wanted> wanted;
  std::vector<size_t> indices;  // indices into `variables_`, one per `wanted`
  std::map<size_t, std::vector<size_t>> by_table;
  {
    MutexLock lock(mutex_);
    for (size_t index = 0; index < variables_.size(); ++index) {
      const auto& variable = variables_[index];
      const auto devices = variable.devices();
      if (variable.is_table || devices.empty()) continue;
      wanted.push_back(
          {.variable = variable.number, .rows = {}, .pinned = pinned_device_of(devices).has_value()});
      indices.push_back(index);
    }
    values->lookups = lookups.all();
    for (size_t i = 0; i < values->lookups.size(); ++i)
      by_table[index_of(values->lookups[i].parameter)].push_back(i);
    for (const auto& [index, which] : by_table) {
      std::vector<at::Tensor> rows;
      for (const size_t i : which) rows.push_back(values->lookups[i].rows.rows);
      wanted.push_back({.variable = variables_[index].number,
                        .rows = rows.size() == 1 ? rows.front() : distinct_rows(at::cat(rows)).rows,
                        .pinned = pinned_device_of(variables_[index].devices()).has_value()});
      indices.push_back(index);
    }
  }
  auto pulled = pull(wanted);
  std::map<const at::TensorImpl*, at::Tensor> pinned;  // one copy for lookups that share numbers
  const auto pinned_once = [&](const at::Tensor& numbers, c10::Device device) {
    at::Tensor& copy = pinned[numbers.unsafeGetTensorImpl()];
    if (!copy.defined()) copy = pinned_for(numbers, device);
    return copy;
  };
  for (size_t i = 0; i < pulled.size(); ++i) {
    const auto table = by_table.find(indices[i]);
    if (table == by_table.end()) {
      values->variables[indices[i]] = std::move(pulled[i]);
      continue;
    }
    values->table_versions[indices[i]] = std::move(pulled[i].versions);
    for (const size_t which : table->second) {
      auto& rows = values->lookups[which].rows;
      rows.values = table->second.size() == 1
                        ? pulled[i].values
                        : values_of_rows(pulled[i].values, at::searchsorted(wanted[i].rows, rows.rows),
                                         wanted[i].pinned);
      const auto device = pinned_device_of(variables_[indices[i]].devices());
      if (!device) continue;
      rows.rows = pinned_once(rows.rows, *device);
      rows.indices = pinned_once(rows.indices, *device);
    }
  }
  return values;
}

void ServedVariables::use(const Values& values) {
  for (auto& variable : variables_) variable.versions.clear();
  for (const auto& [index, versions] : values.table_versions) variables_[index].versions = versions;
  for (const auto& [index, pulled] : values.variables) {
    auto& variable = variables_[index];
    variable.versions = pulled.versions;
    for (const auto& weak : variable.replicas) {
      // An accelerator copies on the caller's current stream; run() makes the replicas' streams wait for it.
      if (auto parameter = weak.lock())
        at::Tensor(std::move(parameter)).copy_(pulled.values, /*non_blocking=*/true);
    }
  }
}

void ServedVariables::refresh(std::shared_ptr<const Values> values) {
  const at::NoGradGuard no_grad;
  double waited = 0;
  if (!values) {
    const auto begin = Clock::now();
    values = read_ahead({});
    waited = seconds_since(begin);
  }
  MutexLock lock(mutex_);
  seconds_waited_ += waited;
  use(*values);
  values_ = std::move(values);
}

TableRows ServedVariables::look_up(const ServedTable& table, const at::Tensor& ids) {
  {
    MutexLock lock(mutex_);
    if (values_)
      for (const auto& lookup : values_->lookups)
        if (lookup.is_of(table.table(), ids))
          return {lookup.rows.rows, lookup.rows.indices.reshape(ids.sizes()), lookup.rows.values};
  }
  auto read = distinct_rows(table.rows_of(ids.cpu()));
  ParameterClient::Wanted wanted{.rows = read.rows,
                                 .pinned = copies_from_pinned_memory(table.table().device())};
  size_t index = 0;
  {
    MutexLock lock(mutex_);
    index = index_of(table.table());
    wanted.variable = variables_[index].number;
  }
  const auto begin = Clock::now();
  auto pulled = pull({wanted});
  MutexLock lock(mutex_);
  seconds_waited_ += seconds_since(begin);
  ParameterClient::keep_older(variables_[index].versions, pulled[0].versions);
  read.values = std::move(pulled[0].values);
  return read;
}

at::Tensor ServedVariables::read_rows(const ServedTable& table, int64_t begin, int64_t end) {
  if (dynamic_cast<const GrowingTable*>(&table) != nullptr)
    throw InvalidArgument(
        "[GrowingEmbedding] expected ids to look up, but got a range of rows, which have no order");
  ParameterClient::Wanted wanted{.rows = at::arange(begin, end)};
  {
    MutexLock lock(mutex_);
    wanted.variable = variables_[index_of(table.table())].number;
  }
  return std::move(pull({wanted}).front().values);
}

void ServedVariables::note_gradients(const torch::optim::Optimizer& optimizer) {
  Gradients copies;
  {
    MutexLock lock(mutex_);
    copies = copies_of_gradients(optimizer);
  }
  // Waits without the lock, because the next step's values are read meanwhile.
  for (const auto& group : optimizer.param_groups()) {
    const auto& parameters = group.params();
    const auto on_device = std::find_if(parameters.begin(), parameters.end(),
                                        [](const auto& parameter) { return !parameter.is_cpu(); });
    if (on_device == parameters.end()) continue;
    synchronize_stream(current_stream(on_device->device()));
    break;  // a replica has one device
  }
  MutexLock lock(mutex_);
  std::move(copies.begin(), copies.end(), std::back_inserter(gradients_));
}

ServedVariables::Gradients ServedVariables::copies_of_gradients(
    const torch::optim::Optimizer& optimizer) const {
  Gradients copies;
  const at::NoGradGuard no_grad;
  for (const auto& group : optimizer.param_groups()) {
    const double lr = group.options().get_lr();
    for (const auto& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      const auto& variable = variables_[index_of(parameter)];
      const auto is_of_it = [&](const auto& taken) { return taken.variable == variable.number; };
      if (std::any_of(gradients_.begin(), gradients_.end(), is_of_it) ||
          std::any_of(copies.begin(), copies.end(), is_of_it))
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
        const auto coalesced = coalesced_rows(gradient);
        taken.rows = coalesced.indices().squeeze(0).contiguous();
        taken.values = coalesced.values().contiguous();  // nothing writes to rows or values any more
        if (!gradient.is_cpu()) {
          taken.rows = copied_to_host(taken.rows);
          taken.values = copied_to_host(taken.values);
        }
      } else {
        taken.values = copied_to_host(gradient);
      }
      copies.push_back(std::move(taken));
    }
  }
  return copies;
}

ServedVariables::Gradients ServedVariables::take_gradients() {
  MutexLock lock(mutex_);
  return std::exchange(gradients_, {});
}

ParameterClient::PushSummary ServedVariables::push(const PushId& id, const Gradients& gradients) {
  MutexLock lock(writer_mutex_);
  return writer_.push(id, gradients);
}

void ServedVariables::contribute(uint64_t step, uint32_t slot, const Gradients& gradients) {
  MutexLock lock(writer_mutex_);
  writer_.contribute(step, slot, gradients);
}

std::vector<uint32_t> ServedVariables::commit(uint64_t step, uint32_t num_slots) {
  MutexLock lock(writer_mutex_);
  return writer_.commit(step, num_slots);
}

void ServedVariables::forget_before(uint64_t closure) {
  MutexLock lock(writer_mutex_);
  writer_.forget_before(closure);
}

void ServedVariables::end_servers() {
  MutexLock lock(writer_mutex_);
  writer_.end_servers();
}

int64_t ServedVariables::num_reconnects() const {
  MutexLock lock(writer_mutex_);
  return writer_.num_reconnects();
}

double ServedVariables::seconds_waited() const {
  MutexLock lock(mutex_);
  return seconds_waited_;
}

}  // namespace lockstep
