#include "lockstep/apps/shared/writable_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "lockstep/runtime/base/files/output_file.h"

namespace lockstep::apps {
namespace {

/// Lacks that end by themselves, or on another machine.
bool may_pass(const std::error_code& error) {
  constexpr std::array kPassing = {
      std::errc::no_space_on_device,
      std::errc::io_error,
      std::errc::not_enough_memory,
      std::errc::too_many_files_open,
      std::errc::too_many_files_open_in_system,
      std::errc::timed_out,
      std::errc::device_or_resource_busy,
      std::errc::resource_unavailable_try_again,
  };
  return std::any_of(kPassing.begin(), kPassing.end(), [&](std::errc passing) { return error == passing; });
}

}  // namespace

void require_writable_folder(const std::string& flag, const std::string& folder) {
  if (folder.empty()) return;
  const std::string place = flag + " " + folder;
  try {
    std::filesystem::create_directories(folder);
    const std::string probe = name_beside(folder + "/.writable");
    const OutputFile file(probe);
    ::unlink(probe.c_str());
  } catch (const std::system_error& error) {
    if (may_pass(error.code())) throw std::system_error(error.code(), place);
    throw FolderError(
        place + ": expected a folder that can be written, but the system says: " + error.code().message());
  }
}

}  // namespace lockstep::apps
