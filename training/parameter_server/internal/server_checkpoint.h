#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/shards/shard_storage.h"
#include "lockstep/training/checkpoints/checkpoint_manifest.h"

namespace lockstep {

struct ServerCheckpointOptions {
  std::string folder;  ///< of a CheckpointStore, which all servers and who owns it share
  int server = 0;
  int num_servers = 1;
  /// Gets a line for each checkpoint that is passed over; empty: std::cerr does.
  std::function<void(const std::string&)> on_message;
};

/// A parameter server's part of the checkpoints in a folder, which all servers write together: a file for
/// each of its shards, and one that says what these are, server-0.pt. Thread-safe, but for take_own().
class ServerCheckpoint : public ShardStorage {
 public:
  /// Looks for the newest checkpoint whose files are whole as far as this server may need them: its own,
  /// where as many servers have written it, and else all. Blocks while it reads these. Throws InvalidArgument
  /// without a folder and for a server that is none of their number, CheckpointError where there are
  /// checkpoints and none is whole, or where one cannot be read.
  explicit ServerCheckpoint(const ServerCheckpointOptions& options);

  /// The shards that this server held then, for it to go on with; none where another number of servers has
  /// written the checkpoint, and when they were taken before.
  std::vector<HeldShard> take_own() { return std::exchange(own_, {}); }
  /// The checkpoint's folder; empty where there is none.
  const std::string& path() const { return path_; }

  /// The name of the checkpoint's folder.
  std::string source() const override;
  std::optional<ParameterShard::Saved> find(const std::string& variable, const RowRange& rows) override;
  /// `folder` is what CheckpointStore::begin() has made, without the way to it. Returns the text of a
  /// CheckpointManifest with the files that were written, and `step` the shards' largest version.
  std::string save(const std::string& folder, const std::vector<HeldShard>& shards) override;

 private:
  /// A shard in the checkpoint.
  struct Entry {
    std::string variable;
    RowRange rows;
    CheckpointFile file;
  };

  void open(const std::string& path);
  void open_server(const CheckpointManifest& manifest, int server, int num_servers);
  ParameterShard::Saved load(const Entry& entry) const;
  void say(const std::string& line) const;

  const ServerCheckpointOptions options_;
  std::string path_;
  std::vector<Entry> entries_;  // of all servers
  std::vector<HeldShard> own_;
};

}  // namespace lockstep
