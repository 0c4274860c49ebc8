#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/parameter_server/variables/served_table.h"
#include "lockstep/strategies/nn/sharded_embedding.h"

namespace lockstep {

/// Lists the ids that a batch will look up in the tables of parameter servers, so that their rows are read
/// ahead, all at the same time and each once. Other rows are read when they are looked up. Not thread-safe.
///
/// Example:
///
///     StepOptions<Example> options;
///     options.look_up = [&](const Example& shard, TableLookups& lookups) {
///       lookups.add(model.primary()->embeddings, shard.data);
///     };
class TableLookups {
 public:
  /// Adds the ids that the table's forward() will be called with. Throws as ServedTable::rows_of().
  void add(const ShardedEmbedding& table, const at::Tensor& ids) { add(*table, ids); }
  void add(const ServedTable& table, const at::Tensor& ids);

  struct Lookup {
    at::Tensor parameter;  ///< Parameter that stands for the table.
    at::Tensor ids;
    uint32_t version = 0;  ///< Version of the ids.
    at::Tensor numbers;    ///< Numbers of the ids' rows.
    TableRows rows;        ///< The distinct rows, without values.

    /// Returns whether this is a lookup of these ids, unchanged since, in this table.
    bool is_of(const at::Tensor& parameter, const at::Tensor& ids) const;
  };
  const std::vector<Lookup>& all() const { return lookups_; }

 private:
  std::vector<Lookup> lookups_;
};

}  // namespace lockstep
