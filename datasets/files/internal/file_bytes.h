#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Reads a whole regular file. Throws DataError where it is missing, unreadable, no regular file, larger than
/// `max_bytes`, or shrinks while it is read. Allocates the file's size, after the check against `max_bytes`.
std::vector<uint8_t> read_file(const std::string& path, uint64_t max_bytes);

}  // namespace lockstep
