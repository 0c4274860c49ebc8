"""Code that tests share which start a process of another user."""

import os
import shutil
import subprocess

ID = 65534
# The user may read all files, lest the folders of the programs are closed to it.
AS_OTHER_USER = ["setpriv", f"--reuid={ID}", f"--regid={ID}", "--clear-groups", "--inh-caps=+dac_read_search",
                 "--ambient-caps=+dac_read_search"]


def why_none():
    """Why this process cannot start one of another user; None if it can."""
    if os.geteuid() != 0:
        return "only root can start a process of another user"
    if not shutil.which("setpriv"):
        return "needs setpriv (Debian: util-linux)"
    tried = subprocess.run([*AS_OTHER_USER, "true"], capture_output=True, text=True, check=False)
    return f"setpriv failed: {tried.stderr.strip()}" if tried.returncode else None
