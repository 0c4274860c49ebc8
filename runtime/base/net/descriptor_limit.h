#pragma once

namespace lockstep {

/// Raises this process's limit on open files to the most that the system allows it, at most 65,536, since the
/// usual limit of 1,024 is less than a large job's connections and files need. Does not lower it, and does
/// not throw: a limit that cannot be raised stays.
void raise_descriptor_limit() noexcept;

}  // namespace lockstep
