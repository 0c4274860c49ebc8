#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/service/parameter_client.h"
#include "lockstep/parameter_server/variables/initial_values.h"
#include "lockstep/parameter_server/variables/row_growth.h"
#include "lockstep/parameter_server/variables/served_table.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/strategies/nn/table_lookups.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace lockstep {

/// The parameters of a process's replicas that live on parameter servers. Thread-safe: reads and writes use
/// separate connections and run concurrently.
class ServedVariables : public TableReader {
 public:
  /// Throws as ParameterClient does.
  explicit ServedVariables(const ParameterClientOptions& options) : reader_(options), writer_(options) {}

  struct NewVariable {
    std::string name;
    std::vector<at::Tensor> replicas;  ///< the parameter of each local replica
    UpdateRule rule;
    /// Initial values of a table, whose parameters are only placeholders; none: the first replica's values.
    std::optional<InitialValues> initial;
    RowFilter filter{};                 ///< for a table
    std::optional<RowGrowth> growth{};  ///< for a table that grows
  };
  /// Adds a variable; with `creates`, also puts it on the servers. All processes must add the same ones in
  /// the same order. Throws InvalidArgument if the name or a parameter was already added, and as
  /// ParameterClient::create() does.
  ParameterClient::CreateSummary add(const NewVariable& variable, bool creates);

  /// Values that were read ahead for a run.
  class Values;
  /// Reads all parameters except tables, and the rows of these lookups, in one exchange. Blocks. Throws as
  /// ParameterClient::pull() and pinned_for() do.
  std::shared_ptr<const Values> read_ahead(const TableLookups& lookups);
  /// Copies `values` into the replicas' parameters, except tables. Without `values`, reads the servers'
  /// current ones first. Blocks, but does not wait for GPUs, which copy on the calling thread's current
  /// streams. Throws as ParameterClient::pull() does.
  void refresh(std::shared_ptr<const Values> values = nullptr);
  TableRows look_up(const ServedTable& table, const at::Tensor& ids) override;
  at::Tensor read_rows(const ServedTable& table, int64_t begin, int64_t end) override;

  /// Gradients to be sent.
  using Gradients = std::vector<ParameterClient::Gradient>;
  /// Copies the gradients of the first replica's optimizer to the host, with its current learning rates.
  /// Waits for a GPU's current stream. Throws InvalidArgument if the optimizer's gradients were copied before
  /// and not taken, or if a gradient belongs to values that were not read since the last refresh().
  void note_gradients(const torch::optim::Optimizer& optimizer);
  Gradients take_gradients();
  /// See ParameterClient.
  ParameterClient::PushSummary push(const PushId& id, const Gradients& gradients);
  void contribute(uint64_t step, uint32_t slot, const Gradients& gradients);
  std::vector<uint32_t> commit(uint64_t step, uint32_t num_slots);
  void forget_before(uint64_t closure);
  void end_servers();
  int64_t num_reconnects() const;

  /// Returns the total time that all threads have waited for servers in refresh() and look_up(), in seconds.
  double seconds_waited() const;

 private:
  struct Variable {
    int number = 0;  // number in the clients
    std::string name;
    bool is_table = false;
    std::vector<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> replicas;
    std::vector<uint64_t> versions;  // versions of the values read since the last refresh, by shard

    /// Returns the devices of the replicas' parameters that still exist.
    std::vector<c10::Device> devices() const;
  };

  size_t index_of(const at::Tensor& parameter) const LOCKSTEP_REQUIRES(mutex_);
  std::vector<ParameterClient::Pulled> pull(const std::vector<ParameterClient::Wanted>& wanted);
  void use(const Values& values) LOCKSTEP_REQUIRES(mutex_);
  /// On GPUs, copies on the current stream.
  Gradients copies_of_gradients(const torch::optim::Optimizer& optimizer) const LOCKSTEP_REQUIRES(mutex_);

  Mutex reader_mutex_;
  ParameterClient reader_ LOCKSTEP_GUARDED_BY(reader_mutex_);
  mutable Mutex writer_mutex_;
  ParameterClient writer_ LOCKSTEP_GUARDED_BY(writer_mutex_);
  mutable Mutex mutex_;
  std::vector<Variable> variables_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<const at::TensorImpl*, size_t> indices_ LOCKSTEP_GUARDED_BY(mutex_);  // indices into variables_
  // Values of the current run, whose rows can be used.
  std::shared_ptr<const Values> values_ LOCKSTEP_GUARDED_BY(mutex_);
  Gradients gradients_ LOCKSTEP_GUARDED_BY(mutex_);
  double seconds_waited_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
