#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/shards/shard_storage.h"
#include "lockstep/training/checkpoints/checkpoint_manifest.h"
#include "lockstep/training/formats/state_view.h"

namespace lockstep {

struct ServerCheckpointOptions {
  std::string folder;  ///< folder of a CheckpointStore, shared by its owner and all servers
  int server = 0;
  int num_servers = 1;
  /// Receives a line for each checkpoint that is skipped; empty: std::cerr.
  std::function<void(const std::string&)> on_message;
  /// For the shards that take_own() returns; see ParameterShard.
  std::shared_ptr<RowDisk> disk{};
};

/// A parameter server's part of the checkpoints that all servers write together in a folder: one file per
/// shard, and one that describes them, such as server-0.pt. Thread-safe except for take_own().
class ServerCheckpoint : public ShardStorage {
 public:
  /// Finds the newest checkpoint in which all files that this server may need are intact: its own if the same
  /// number of servers wrote it, otherwise all. Blocks while it reads them. Throws InvalidArgument if there
  /// is no folder or the server's number is out of range, and CheckpointError if no checkpoint is intact or
  /// one cannot be read. An empty folder is no error.
  explicit ServerCheckpoint(const ServerCheckpointOptions& options);

  /// Returns the shards that this server held when the checkpoint was written, to resume them, except tables
  /// that grow whose limit of memory was none that rows on the disk can have. Empty if another number of
  /// servers wrote it, or if they were already taken.
  std::vector<HeldShard> take_own() { return std::exchange(own_, {}); }
  /// Returns the checkpoint's path; empty if there is none.
  const std::string& path() const { return path_; }

  /// Returns the name of the checkpoint's folder.
  std::string source() const override;
  std::optional<ParameterShard::Saved> find(const std::string& variable, const RowRange& rows) override;
  std::optional<ParameterShard::Saved> find_growing(const std::string& variable, const FilteredRows& filtered,
                                                    const RowGrowth& growth) override;
  /// `folder` is the name, without its path, of a folder that CheckpointStore::begin() created. Returns the
  /// text of a CheckpointManifest that lists the written files; its `step` is the shards' largest version.
  /// Throws as ShardStorage::save().
  std::string save(const std::string& folder, const std::vector<HeldShard>& shards) override;

 private:
  /// A shard in the checkpoint.
  struct Entry {
    std::string variable;
    RowRange rows;
    CheckpointFile file;
    std::optional<RowFilter> filter{};
    bool grows = false;
  };

  void open(const std::string& path);
  void open_server(const CheckpointManifest& manifest, int server, int num_servers);
  void restore_own(const StateView& described, const Entry& entry);
  ParameterShard::Saved load(const Entry& entry) const;
  void log(const std::string& line) const;

  const ServerCheckpointOptions options_;
  std::string path_;
  std::vector<Entry> entries_;  // of all servers
  std::vector<HeldShard> own_;
};

}  // namespace lockstep
