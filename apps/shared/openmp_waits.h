#pragma once

namespace lockstep::apps {

/// Makes OpenMP's threads sleep while they wait for work. By default they spin, and a training that shares
/// its cores with other processes is then up to 12 times as slow. Call it first in main().
///
/// OpenMP reads its settings when it is loaded, which is before main(). So this starts the program anew, in
/// the same process and with the same arguments, with OMP_WAIT_POLICY=passive in its environment. Does
/// nothing if the environment has OMP_WAIT_POLICY or GOMP_SPINCOUNT already, or if the system refuses the
/// start.
void let_openmp_threads_sleep(char** argv);

}  // namespace lockstep::apps
