#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/variables/partitioner.h"

namespace lockstep {

/// A shard with its variable and rows.
struct HeldShard {
  std::string variable;
  RowRange rows;
  std::shared_ptr<ParameterShard> shard;
};

/// Saves a parameter server's shards and finds saved ones. Thread-safe.
class ShardStorage {
 public:
  virtual ~ShardStorage() = default;

  /// Returns the saved state of these rows, however the variable was split then; none if nothing of the
  /// variable was saved. Throws InvalidArgument if only some of the rows were saved, and CheckpointError if
  /// the state cannot be read.
  virtual std::optional<ParameterShard::Saved> find(const std::string& variable, const RowRange& rows) = 0;

  /// Same, for a shard of `filtered.rows` of a table that grows: all its saved rows, and those of a table
  /// with numbered rows that had the same name. See assemble_growing().
  virtual std::optional<ParameterShard::Saved> find_growing(const std::string& variable,
                                                            const FilteredRows& filtered,
                                                            const RowGrowth& growth) = 0;

  /// Returns the source of saved state, such as the name of a checkpoint; empty if nothing was saved.
  virtual std::string source() const = 0;

  /// Saves the shards in `folder`, which the client has created, and returns the answer for the client. Each
  /// shard is consistent in itself, but they are not saved at the same moment. Blocks until everything is on
  /// disk. Throws InvalidArgument if the client may not name this folder, CheckpointError if the folder is
  /// not there, as on a machine that does not share it, and std::system_error naming the file.
  virtual std::string save(const std::string& folder, const std::vector<HeldShard>& shards) = 0;
};

}  // namespace lockstep
