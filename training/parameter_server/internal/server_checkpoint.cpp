#include "lockstep/training/parameter_server/internal/server_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "lockstep/parameter_server/shards/growing_assembly.h"
#include "lockstep/parameter_server/shards/shard_assembly.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/files/part_sink.h"
#include "lockstep/runtime/base/internal/error_line.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/formats/internal/state_archive.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/parameter_server/internal/saved_row_file.h"
#include "lockstep/training/parameter_server/internal/shard_file.h"

namespace lockstep {
namespace {

constexpr int64_t kFormat = 1;

std::string name_of_server_file(int server) {
  return "server-" + std::to_string(server) + ".pt";
}

std::string name_of_shard_file(int server, size_t shard) {
  return "server-" + std::to_string(server) + "-shard-" + std::to_string(shard) + ".pt";
}

const CheckpointFile& file_in(const CheckpointManifest& manifest, const std::string& name,
                              const std::string& folder) {
  const auto found = std::find_if(manifest.files.begin(), manifest.files.end(),
                                  [&](const auto& file) { return file.name == name; });
  if (found == manifest.files.end()) throw CheckpointError(folder + "/manifest.json", "files", name, "none");
  return *found;
}

CheckpointFile write_state(const std::string& folder, const std::string& name,
                           const StateValue::Dict& state) {
  return write_checkpoint_file(folder, name, [&](PartSink& sink) { write_state_archive(state, sink); });
}

/// Writes large tensors in pieces, and releases each one's memory if it is a mapped file of the disk.
class ReleasingSink : public PartSink {
 public:
  ReleasingSink(PartSink& sink, RowDisk& disk) : sink_(sink), disk_(disk) {}

  void write(const void* bytes, size_t count) override {
    constexpr size_t kMost = size_t{1} << 20;
    const char* next = static_cast<const char*>(bytes);
    while (count > 0) {
      const size_t size = std::min(count, kMost);
      sink_.write(next, size);
      disk_.release(next, size);
      next += size;
      count -= size;
    }
  }
  void end_part(const std::string& name) override { sink_.end_part(name); }

 private:
  PartSink& sink_;
  RowDisk& disk_;
};

/// Writes a shard that may be larger than the memory. The manifest has its checksums; others would need a
/// second pass.
CheckpointFile write_rows_on_disk(const std::string& folder, const std::string& name,
                                  const StateValue::Dict& state, RowDisk& disk) {
  return write_checkpoint_file(folder, name, [&](PartSink& sink) {
    ReleasingSink releasing(sink, disk);
    write_state_archive(state, releasing, {}, /*has_checksums=*/false);
  });
}

StateValue read_state(const std::string& folder, const CheckpointFile& file) {
  const std::string bytes = read_checkpoint_file(folder, file);
  return read_state_archive(InputFile(folder + "/" + file.name, bytes));
}

/// Returns the shard of `rows` that `described` holds, in a server's file, without its values; null if rows
/// on the disk cannot have the limit of memory that it had.
std::shared_ptr<ParameterShard> described_shard(const StateView& described, const RowRange& rows,
                                                const ParameterShard::Saved& saved,
                                                const std::shared_ptr<RowDisk>& disk) {
  const auto growth = growth_in(described);
  try {
    return std::make_shared<ParameterShard>(described.at("name").text(), saved.values,
                                            rule_in(described.at("rule")),
                                            filter_in(described.at("filter"), rows), growth, disk);
  } catch (const InvalidArgument&) {
    if (growth && disk) return nullptr;
    throw;
  }
}

}  // namespace

ServerCheckpoint::ServerCheckpoint(const ServerCheckpointOptions& options) : options_(options) {
  if (options_.folder.empty()) throw InvalidArgument("[ServerCheckpoint] expected a folder, but got ''");
  if (options_.server < 0 || options_.server >= options_.num_servers)
    throw InvalidArgument("[ServerCheckpoint] expected a server of 0 to " +
                          std::to_string(options_.num_servers - 1) + ", but got " +
                          std::to_string(options_.server));
  std::string damage;
  for (const auto& path : list_checkpoints(options_.folder)) {
    try {
      open(path);
      return;
    } catch (const CheckpointUnreadable&) {
      throw;  // the checkpoint may be whole
    } catch (const CheckpointError& error) {
      if (damage.empty()) damage = error.what();
      log(std::string("passed over a damaged checkpoint: ") + error.what());
    }
  }
  if (!damage.empty())
    throw CheckpointError(options_.folder + ": expected a whole checkpoint, but all are damaged: " + damage);
}

void ServerCheckpoint::log(const std::string& line) const {
  if (options_.on_message) {
    options_.on_message(line);
  } else {
    write_error_line(line);
  }
}

std::string ServerCheckpoint::source() const {
  return std::filesystem::path(path_).filename();
}

void ServerCheckpoint::open(const std::string& path) {
  path_ = path;
  entries_.clear();
  own_.clear();
  const auto manifest = read_manifest(path);
  const auto first = read_state(path, file_in(manifest, name_of_server_file(0), path));
  const auto num_servers = StateView(first, path + "/" + name_of_server_file(0)).at("num_servers").count();
  for (int server = 0; server < num_servers; ++server)
    open_server(manifest, server, static_cast<int>(num_servers));
}

void ServerCheckpoint::open_server(const CheckpointManifest& manifest, int server, int num_servers) {
  const std::string source = path_ + "/" + name_of_server_file(server);
  const auto state = read_state(path_, file_in(manifest, name_of_server_file(server), path_));
  const StateView saved(state, source);
  if (const auto format = saved.at("format").integer(); format != kFormat)
    throw CheckpointUnreadable(source, "['format']", std::to_string(kFormat), std::to_string(format));
  if (saved.at("server").integer() != server || saved.at("num_servers").integer() != num_servers)
    throw CheckpointError(source, "['server']", std::to_string(server) + " of " + std::to_string(num_servers),
                          "another one");
  const bool is_own = server == options_.server && num_servers == options_.num_servers;
  const bool is_needed = is_own || num_servers != options_.num_servers;
  for (const auto& shard : saved.at("shards").items()) {
    const auto rows = shard.at("rows").items();
    if (rows.size() != 2) shard.at("rows").fail("two numbers");
    Entry entry{.variable = shard.at("variable").text(),
                .rows = {rows[0].count(), rows[1].count()},
                .file = file_in(manifest, shard.at("file").text(), path_)};
    if (const auto filtered = filter_in(shard.at("filter"), entry.rows)) entry.filter = filtered->filter;
    entry.grows = growth_in(shard).has_value();
    if (is_own) {
      restore_own(shard, entry);
    } else if (is_needed) {
      check_checkpoint_file(path_, entry.file);
    }
    entries_.push_back(std::move(entry));
  }
}

void ServerCheckpoint::restore_own(const StateView& described, const Entry& entry) {
  const auto saved = load(entry);
  try {
    const auto shard = described_shard(described, entry.rows, saved, options_.disk);
    if (!shard) return;  // find_growing() returns its rows, for the limit that clients ask for
    shard->restore(saved);
    own_.push_back({entry.variable, entry.rows, shard});
  } catch (const InvalidArgument& error) {
    throw CheckpointError(path_ + "/" + entry.file.name + ": " + error.what());
  }
}

/// A table that grows may be larger than the memory: its rows are read in pieces, when they are restored.
ParameterShard::Saved ServerCheckpoint::load(const Entry& entry) const {
  if (entry.grows) {
    check_checkpoint_file(path_, entry.file);
    return open_growing_shard(path_ + "/" + entry.file.name);
  }
  const auto state = read_state(path_, entry.file);
  return shard_in(StateView(state, path_ + "/" + entry.file.name));
}

std::optional<ParameterShard::Saved> ServerCheckpoint::find(const std::string& variable,
                                                            const RowRange& rows) {
  std::vector<SavedShard> parts;
  bool is_there = false;
  for (const auto& entry : entries_) {
    if (entry.variable != variable) continue;
    is_there = true;
    const bool has_some = entry.rows.begin < rows.end && rows.begin < entry.rows.end;
    if (has_some || entry.rows == rows) parts.push_back({entry.rows, load(entry)});
  }
  if (!is_there) return std::nullopt;
  try {
    return assemble_shard(parts, rows);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(path_ + ": " + variable + ": " + error.what());
  }
}

std::optional<ParameterShard::Saved> ServerCheckpoint::find_growing(const std::string& variable,
                                                                    const FilteredRows& filtered,
                                                                    const RowGrowth& growth) {
  std::vector<const Entry*> found;
  const auto own = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.variable == variable && entry.grows && entry.rows == filtered.rows;
  });
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    // Beside the same rows of a table that grows, those of other servers are not needed.
    if (entry->variable == variable && (own == entries_.end() || entry == own)) found.push_back(&*entry);
  }
  if (found.empty()) return std::nullopt;
  std::vector<SavedShard> parts;
  try {
    for (const Entry* entry : found) {
      SavedShard part{entry->rows, load(*entry), entry->filter};
      // Of a table with numbered rows, no more than one whole part is in memory.
      part.saved = growing_part(part, filtered, growth);
      parts.push_back(std::move(part));
    }
    return assemble_growing(parts, filtered, growth);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(path_ + ": " + variable + ": " + error.what());
  }
}

std::string ServerCheckpoint::save(const std::string& folder, const std::vector<HeldShard>& shards) {
  if (!is_begun_checkpoint(folder))
    throw InvalidArgument("[ServerCheckpoint] expected the name of a checkpoint that was begun, but got '" +
                          folder + "'");
  const std::string path = options_.folder + "/" + folder;
  if (!std::filesystem::is_directory(path))
    throw CheckpointError(path +
                          ": expected a folder that all servers share with the process that saves, "
                          "but it is missing");
  CheckpointManifest manifest;
  StateValue::List described;
  for (const auto& [variable, rows, shard] : shards) {
    const std::string name = name_of_shard_file(options_.server, described.size());
    const auto saved = shard->save();
    manifest.step = std::max(manifest.step, static_cast<int64_t>(saved.version));
    const auto state = state_of_shard(saved);
    manifest.files.push_back(shard->growth() && options_.disk
                                 ? write_rows_on_disk(path, name, state, *options_.disk)
                                 : write_state(path, name, state));
    StateValue::Dict entry;
    entry.add("name", shard->name());
    entry.add("variable", variable);
    entry.add("rows", StateValue::Tuple{{rows.begin, rows.end}});
    entry.add("rule", state_of_rule(shard->rule()));
    entry.add("filter", state_of_filter(shard->filtered()));
    if (shard->growth()) entry.add("growth", state_of_growth(*shard->growth()));
    entry.add("file", name);
    described.emplace_back(std::move(entry));
  }
  StateValue::Dict server;
  server.add("format", kFormat);
  server.add("server", options_.server);
  server.add("num_servers", options_.num_servers);
  server.add("shards", std::move(described));
  manifest.files.push_back(write_state(path, name_of_server_file(options_.server), server));
  return manifest_text(manifest);
}

}  // namespace lockstep
