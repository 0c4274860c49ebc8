#include "lockstep/apps/shared/writable_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "lockstep/runtime/base/files/output_file.h"

namespace lockstep::apps {

bool is_refused_for_good(const std::error_code& error) {
  constexpr std::array kLasting = {
      std::errc::permission_denied,
      std::errc::operation_not_permitted,
      std::errc::read_only_file_system,
      std::errc::not_a_directory,
      std::errc::is_a_directory,
      std::errc::filename_too_long,
      std::errc::too_many_symbolic_link_levels,
  };
  return std::any_of(kLasting.begin(), kLasting.end(), [&](std::errc lasting) { return error == lasting; });
}

void require_writable_folder(const std::string& flag, const std::string& folder) {
  if (folder.empty()) return;
  const std::string place = flag + " " + folder;
  try {
    std::filesystem::create_directories(folder);
    const std::string probe = name_beside(folder + "/.writable");
    const OutputFile file(probe);
    ::unlink(probe.c_str());
  } catch (const std::system_error& error) {
    // A file that is missing may still come, but a folder that is being made lacks a place, as in /proc.
    const bool has_no_place = error.code() == std::errc::no_such_file_or_directory;
    if (!has_no_place && !is_refused_for_good(error.code())) throw std::system_error(error.code(), place);
    throw FolderError(
        place + ": expected a folder that can be written, but the system says: " + error.code().message());
  }
}

}  // namespace lockstep::apps
