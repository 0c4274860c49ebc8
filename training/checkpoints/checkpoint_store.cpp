#include "lockstep/training/checkpoints/checkpoint_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <random>
#include <string_view>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/folder_lock.h"
#include "lockstep/runtime/base/files/internal/replaced_file.h"
#include "lockstep/runtime/base/files/internal/sha256.h"
#include "lockstep/runtime/base/files/part_sink.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
// Zero-padded, so that names sort in the order of steps.
constexpr size_t kStepDigits = 12;
// Prefix of folders that are being made or removed: nobody reads them.
constexpr std::string_view kUnfinished = ".unfinished-";
constexpr std::string_view kSetAside = "set-aside-";

[[noreturn]] void throw_store_error(const std::string& action, const std::string& path, int error) {
  throw std::system_error(error, std::generic_category(), "cannot " + action + " '" + path + "'");
}

std::string name_of_step(int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(kPrefix) + std::string(kStepDigits - std::min(kStepDigits, digits.size()), '0') + digits;
}

bool is_checkpoint_name(const std::string& name) {
  return name.starts_with(kPrefix) && name.size() >= kPrefix.size() + kStepDigits &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

/// Returns the step in the name of a checkpoint's folder.
int64_t step_of(const std::string& path) {
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  const std::string name = fs::path(path).filename().string();
  int64_t step = kFar;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return step;
}

/// Makes the names in the folder survive a power failure.
void synchronize(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw_store_error("open", folder, errno);
  const bool is_done = ::fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP;
  const int error = errno;
  ::close(descriptor);
  if (!is_done) throw_store_error("write", folder, error);
}

/// A file of a checkpoint, with the checksums of its parts.
class CheckpointFileWriter : public PartSink {
 public:
  explicit CheckpointFileWriter(const std::string& path) : file_(path) {}

  void write(const void* bytes, size_t count) override {
    file_.write(bytes, count);
    digest_.update(bytes, count);
    size_ += count;
  }
  void end_part(const std::string& name) override {
    parts_.push_back({.name = name, .size = size_, .sha256 = digest_.finish()});
    size_ = 0;
  }

  /// Returns the parts once all of them are on disk.
  std::vector<CheckpointPart> commit() {
    if (size_ > 0) end_part("end");
    file_.commit();
    return std::move(parts_);
  }

 private:
  ReplacedFile file_;
  Sha256 digest_;
  uint64_t size_ = 0;
  std::vector<CheckpointPart> parts_;
};

void write_text_file(const std::string& path, const std::string& text) {
  ReplacedFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

std::vector<std::string> names_in_folder(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory) {
    throw CheckpointError(folder + ": cannot list the checkpoints in it: " + error.message());
  }
  return names;
}

}  // namespace

bool is_begun_checkpoint(const std::string& name) {
  return name.starts_with(kUnfinished) && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

bool is_checkpoint(const std::string& folder) {
  return is_checkpoint_name(fs::path(folder).filename().string()) ||
         ::access((folder + "/manifest.json").c_str(), F_OK) == 0;
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> names = names_in_folder(folder);
  std::erase_if(names, [](const auto& name) { return !is_checkpoint_name(name); });
  // Longer numbers are larger.
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return a.size() != b.size() ? a.size() > b.size() : a > b; });
  for (auto& name : names) name.insert(0, folder + "/");
  return names;
}

CheckpointFile write_checkpoint_file(const std::string& begun, const std::string& file_name,
                                     const std::function<void(PartSink&)>& write) {
  CheckpointFileWriter file(begun + "/" + file_name);
  write(file);
  return {.name = file_name, .parts = file.commit()};
}

CheckpointStore::CheckpointStore(const CheckpointStoreOptions& options) : options_(options) {
  if (options.folder.empty()) throw InvalidArgument("[CheckpointStore] expected a folder, but got ''");
  if (options.keep_last < 1) {
    throw InvalidArgument("[CheckpointStore] expected to keep 1 or more checkpoints, but got " +
                          std::to_string(options.keep_last));
  }
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) throw_store_error("make", options.folder, error.value());
  synchronize(fs::absolute(options.folder).lexically_normal().parent_path().string());
  try {
    lock_ = std::make_unique<FolderLock>(options.folder + "/lock",
                                         FolderOwner::here(options.job, options.generation));
  } catch (const FolderInUse& owner) {
    throw CheckpointError("[CheckpointStore] expected a folder that no process writes to, but '" +
                          options.folder + "' is in use by " + owner.what());
  }
  for (const auto& name : names_in_folder(options.folder))
    if (name.starts_with(kUnfinished) || name.starts_with("lock.generation-"))
      abandon(options.folder + "/" + name);  // a process of an earlier start may still write there
}

CheckpointStore::~CheckpointStore() = default;

void CheckpointStore::check_owned() const {
  if (lock_->holds()) return;
  throw CheckpointError(
      "[CheckpointStore] expected to own '" + options_.folder +
      "', but a later start of this job has taken it: " + folder_owner(options_.folder + "/lock"));
}

std::string CheckpointStore::begin() {
  check_owned();
  // Other processes may write there too, so the name is random rather than made of a process id: another
  // start of the job, whose process may have the same id in its own container, must not take the folder for
  // its own.
  std::random_device random;
  const uint64_t bits = uint64_t{random()} << 32 | random();
  std::string begun = options_.folder + "/" + std::string(kUnfinished) + std::to_string(options_.generation) +
                      "-" + std::to_string(bits);
  if (::mkdir(begun.c_str(), 0777) != 0) throw_store_error("make", begun, errno);
  return begun;
}

std::string CheckpointStore::commit(const std::string& begun, CheckpointManifest manifest) {
  check_owned();  // a later owner of the folder has removed `begun`
  const std::string name = name_of_step(manifest.step);
  manifest.generation = options_.generation;
  const std::string text = manifest_text(manifest);
  if (text.size() > kMaxManifestBytes) throw_store_error("write", begun + "/manifest.json", EFBIG);
  write_text_file(begun + "/manifest.json", text);
  write_text_file(begun + "/manifest.sha256", sha256(text) + "  manifest.json\n");
  synchronize(begun);
  check_owned();
  publish(begun, name);
  remove_superfluous();
  return options_.folder + "/" + name;
}

void CheckpointStore::abandon(const std::string& begun) {
  std::error_code ignored;
  fs::remove_all(begun, ignored);
}

std::string CheckpointStore::save(CheckpointManifest manifest, const std::string& file_name,
                                  const std::function<void(PartSink&)>& write) {
  const std::string begun = begin();
  try {
    manifest.files = {write_checkpoint_file(begun, file_name, write)};
    return commit(begun, std::move(manifest));
  } catch (...) {
    abandon(begun);
    throw;
  }
}

std::string CheckpointStore::removed_name(const std::string& name) const {
  return options_.folder + "/" + std::string(kUnfinished) + "removed-" + name;
}

/// Gives `made` its name. An existing checkpoint of that name is exchanged for it, atomically if the system
/// can. If anything fails, the existing one stays.
void CheckpointStore::publish(const std::string& made, const std::string& name) const {
  const std::string path = options_.folder + "/" + name;
  const auto rename_with = [&](unsigned flags) {
    return ::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, path.c_str(), flags) == 0 ? 0 : errno;
  };
  const auto is_unknown = [](int error) { return error == EINVAL || error == ENOSYS || error == ENOTSUP; };
  int error = rename_with(RENAME_NOREPLACE);
  const bool is_exchanged = error == EEXIST;
  if (is_exchanged) error = rename_with(RENAME_EXCHANGE);
  if (is_unknown(error)) {
    publish_by_two_steps(made, name);
  } else if (error != 0) {
    throw_store_error("make", path, error);
  } else if (is_exchanged) {
    remove(made);
  }
  synchronize(options_.folder);
}

/// For file systems without those flags.
void CheckpointStore::publish_by_two_steps(const std::string& made, const std::string& name) const {
  const std::string path = options_.folder + "/" + name;
  const std::string old = removed_name(name);
  const bool is_there = ::access(path.c_str(), F_OK) == 0;
  if (is_there && std::rename(path.c_str(), old.c_str()) != 0) throw_store_error("replace", path, errno);
  if (std::rename(made.c_str(), path.c_str()) != 0) {
    const int error = errno;
    if (is_there) std::rename(old.c_str(), path.c_str());
    throw_store_error("make", path, error);
  }
  if (is_there) remove(old);
}

/// Renames the folder first: half of it under its own name would look like a damaged checkpoint.
void CheckpointStore::remove(const std::string& path) const {
  std::string target = path;
  if (!fs::path(path).filename().string().starts_with(kUnfinished)) {
    target = removed_name(fs::path(path).filename().string());
    std::error_code ignored;
    fs::remove_all(target, ignored);
    if (std::rename(path.c_str(), target.c_str()) != 0) throw_store_error("remove", path, errno);
  }
  std::error_code error;
  fs::remove_all(target, error);
  if (error) throw_store_error("remove", target, error.value());
}

void CheckpointStore::remove_superfluous() const {
  const auto paths = list_checkpoints(options_.folder);
  if (static_cast<int64_t>(paths.size()) <= options_.keep_last) return;
  int64_t kept = 0;
  bool has_best = false;
  for (const auto& path : paths) {
    // A damaged checkpoint counts like any other: nothing is known of it, and somebody may want to look at
    // it.
    bool is_best = false;
    if (!has_best) {
      try {
        is_best = read_manifest(path).is_best;
      } catch (const CheckpointError&) {
      }
    }
    has_best = has_best || is_best;
    if (kept < options_.keep_last) {
      ++kept;
    } else if (!is_best) {
      remove(path);
    }
  }
}

void CheckpointStore::clear() {
  check_owned();
  for (const auto& path : list_checkpoints(options_.folder)) remove(path);
  for (const auto& name : names_in_folder(options_.folder))
    if (name.starts_with(kSetAside)) remove(options_.folder + "/" + name);
}

int64_t CheckpointStore::set_aside_after(int64_t step) {
  check_owned();
  int64_t count = 0;
  for (const auto& path : list_checkpoints(options_.folder)) {
    if (step_of(path) <= step) continue;
    const std::string aside =
        options_.folder + "/" + std::string(kSetAside) + fs::path(path).filename().string();
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    if (std::rename(path.c_str(), aside.c_str()) != 0) throw_store_error("rename", path, errno);
    ++count;
  }
  if (count > 0) synchronize(options_.folder);
  return count;
}

}  // namespace lockstep
