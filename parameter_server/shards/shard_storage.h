#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/variables/partitioner.h"

namespace lockstep {

/// A shard, and what it is a shard of.
struct HeldShard {
  std::string variable;
  RowRange rows;
  std::shared_ptr<ParameterShard> shard;
};

/// Where a parameter server's shards are saved, and what they go on from. Thread-safe.
class ShardStorage {
 public:
  virtual ~ShardStorage() = default;

  /// What was saved of these rows, however the variable was cut then; nothing where none of the variable was.
  /// Throws InvalidArgument where only some of the rows were, and CheckpointError for what cannot be read.
  virtual std::optional<ParameterShard::Saved> find(const std::string& variable, const RowRange& rows) = 0;

  /// Where they are from, such as the name of a checkpoint; empty where nothing was saved.
  virtual std::string source() const = 0;

  /// Saves the shards in `folder`, which the asker has made, and returns what the asker is to be told. Each
  /// shard is saved as it is at some moment of its own. Blocks until all is on the disk. Throws
  /// InvalidArgument for a folder that is none of the asker's to name, and std::system_error naming the file.
  virtual std::string save(const std::string& folder, const std::vector<HeldShard>& shards) = 0;
};

}  // namespace lockstep
