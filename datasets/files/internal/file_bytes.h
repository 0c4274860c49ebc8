#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Reads a whole regular file. Throws DataError if it is missing, unreadable, not a regular file, larger than
/// `max_bytes`, or shrinks while it is read. Checks `max_bytes` before it allocates memory.
std::vector<uint8_t> read_file(const std::string& path, uint64_t max_bytes);

}  // namespace lockstep
