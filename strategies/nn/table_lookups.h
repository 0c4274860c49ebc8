#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/parameter_server/variables/served_table.h"
#include "lockstep/strategies/nn/sharded_embedding.h"

namespace lockstep {

/// The ids that a batch will look up in the tables of parameter servers, so that their rows are read all at
/// once, each of them once, and before they are needed. What is not listed is read when it is looked up. For
/// one thread.
class TableLookups {
 public:
  /// `ids` are what the table's forward() will be called with. Throws as ServedTable::rows_of().
  void add(const ShardedEmbedding& table, const at::Tensor& ids) { add(*table, ids); }
  void add(const ServedTable& table, const at::Tensor& ids);

  struct Lookup {
    at::Tensor parameter;  ///< that stands for the table
    at::Tensor ids;
    uint32_t version = 0;  ///< of the ids
    at::Tensor numbers;    ///< of the ids' rows
    TableRows rows;        ///< the same, without values

    /// Whether it is of these ids, unchanged since.
    bool is_of(const at::Tensor& parameter, const at::Tensor& ids) const;
  };
  const std::vector<Lookup>& all() const { return lookups_; }

 private:
  std::vector<Lookup> lookups_;
};

}  // namespace lockstep
