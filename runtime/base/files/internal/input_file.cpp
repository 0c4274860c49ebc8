#include "lockstep/runtime/base/files/internal/input_file.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/files/checkpoint_error.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_to(const char* action, const std::string& path, const std::system_error& refused) {
  const std::string text = path + ": cannot " + action + ": " + refused.code().message();
  // The file is missing, or the disk has a bad block.
  const int error = refused.code().value();
  if (error == ENOENT || error == EIO) throw CheckpointError(text);
  throw CheckpointUnreadable(text);
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  try {
    file_.emplace(path_);
  } catch (const NotARegularFile& other) {
    throw CheckpointError(other.what());
  } catch (const std::system_error& refused) {
    refuse_to("open", path_, refused);
  }
  size_ = file_->size();
}

InputFile::InputFile(std::string path, std::string_view bytes)
    : path_(std::move(path)), bytes_(bytes.data()), size_(bytes.size()) {}

void InputFile::read(uint64_t offset, void* bytes, size_t count) const {
  if (offset > size_ || count > size_ - offset) {
    throw CheckpointError(path_, "file size",
                          "at least " + std::to_string(offset) + " + " + std::to_string(count) + " bytes",
                          std::to_string(size_));
  }
  if (!file_) {
    if (count > 0) std::memcpy(bytes, bytes_ + offset, count);
    return;
  }
  try {
    const size_t done = file_->read_at(offset, bytes, count);
    if (done < count) {
      throw CheckpointError(path_, "file size", std::to_string(size_) + " bytes as when it was opened",
                            std::to_string(offset + done));
    }
  } catch (const std::system_error& refused) {
    refuse_to("read", path_, refused);
  }
}

}  // namespace lockstep
