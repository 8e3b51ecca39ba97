"""How a dead process is told from one that hangs or can't be reached: its host refuses connections to its ports."""

import asyncio

PROBE_SECONDS = 0.3


async def is_refused(host: str, port: int) -> bool:
    """Returns whether a host answers that nobody listens on a port: not silence, not an unreachable network."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
